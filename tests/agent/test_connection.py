"""The connection of an agent to its manager, with a simulated clock."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.agent.connection import HELLO_TIMEOUT, READ_INTERVAL, SLOW_PACE, Connection
from qcg.pilotjob.agent.fence import Fence
from qcg.pilotjob.agent.poller import Poller
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.timing import AGENT_HEARTBEAT, AGENT_SILENCE
from tests.agent.manager import TIMEOUT, manager
from tests.support.waiting import wait_for

HELLO = protocol.Hello("n1", "host", 1, [0], "1.0")


class Line:
    """A connection with a simulated clock, heartbeats and manager liveness."""

    def __init__(self, run_dir: Path) -> None:
        self.log: list[str] = []
        self._poller = Poller()
        self.fence = Fence(lambda: None)
        self.connection = Connection(run_dir, HELLO, self._poller, self.log.append, self.fence)

    def receive(self) -> list[protocol.FromManager]:
        """The next messages; empty when the connection is broken."""
        # A socket may have woken for another reason.
        ready = wait_for(lambda: self._poller.poll(1000), TIMEOUT, "the manager")
        return self.connection.receive(ready)

    def is_up(self) -> bool:
        return self.connection.up


@pytest.fixture
def line(run_dir: Path) -> Iterator[Line]:
    made = Line(run_dir)
    yield made
    made.connection.close()
    made.fence.close()


@pytest.mark.parametrize(("fence", "pace"), [(1000.0, 1), (0.0, SLOW_PACE)])
def test_hello_is_sent_over_a_new_connection_to_a_silent_manager(
    line: Line, run_dir: Path, fence: float, pace: float
) -> None:
    """The interval is shorter where a silent manager ends the agent."""
    line.fence.arm("", fence)
    with manager(run_dir) as silent:
        line.connection.maintain(time.monotonic())
        silent.next(protocol.Hello)
        silent.send(protocol.Welcome(0, 0))
        before = time.monotonic()
        assert line.receive() == [protocol.Welcome(0, 0)]
        line.connection.welcomed()
        line.connection.maintain(before + pace * AGENT_HEARTBEAT)
        silent.next(protocol.Beat)
        line.connection.maintain(before + pace * AGENT_SILENCE - 0.1)
        assert line.is_up()
        line.connection.maintain(time.monotonic() + pace * AGENT_SILENCE + 0.1)
        assert not line.is_up()
        line.connection.maintain(time.monotonic() + pace * AGENT_SILENCE + 0.2)
        assert silent.next(protocol.Hello) == HELLO
        assert line.log == ["the manager is silent; looking for it"]


def test_a_broken_connection_is_noticed_at_once(line: Line, run_dir: Path) -> None:
    with manager(run_dir) as old:
        line.connection.maintain(time.monotonic())
        old.next(protocol.Hello)
        line.connection.welcomed()
    assert line.receive() == []
    assert not line.is_up()
    assert line.connection.next_deadline() <= time.monotonic() + READ_INTERVAL
    with manager(run_dir) as new:
        line.connection.maintain(time.monotonic() + READ_INTERVAL)
        assert new.next(protocol.Hello) == HELLO


def test_a_welcome_over_a_connection_that_just_broke_is_ignored(line: Line, run_dir: Path) -> None:
    with manager(run_dir) as old:
        line.connection.maintain(time.monotonic())
        old.next(protocol.Hello)
    line.receive()
    line.connection.welcomed()
    assert not line.is_up()


def test_a_manager_that_moved_while_the_agent_connected_is_found(line: Line, run_dir: Path) -> None:
    with manager(run_dir):
        gone = contact.read(run_dir)
    assert gone is not None
    now = time.monotonic()
    line.connection.maintain(now)
    with manager(run_dir) as new:
        line.connection.maintain(now + READ_INTERVAL)
        assert new.next(protocol.Hello) == HELLO


def test_a_manager_that_sent_identify_gets_time_to_answer_before_a_new_connection(line: Line, run_dir: Path) -> None:
    with manager(run_dir) as old:
        line.connection.maintain(time.monotonic() - 100 * HELLO_TIMEOUT)
        old.next(protocol.Hello)
        line.connection.send_hello()
        opened = line.connection._socket
        line.connection.maintain(line.connection._hello_sent_at + HELLO_TIMEOUT - 0.1)
        assert line.connection._socket is opened
        line.connection.maintain(line.connection._hello_sent_at + HELLO_TIMEOUT + READ_INTERVAL)
        assert line.connection._socket is not opened


def test_another_process_at_the_address_of_the_manager_is_not_fatal(line: Line, run_dir: Path) -> None:
    """A process that speaks another protocol, such as a program that was given the port."""
    with manager(run_dir), socket.create_server(("127.0.0.1", 0)) as other:
        good = contact.read(run_dir)
        assert good is not None
        assert good.agents is not None
        agents = msgspec.structs.replace(good.agents, address=f"tcp://127.0.0.1:{other.getsockname()[1]}")
        contact.write(run_dir, msgspec.structs.replace(good, agents=agents))
        line.connection.maintain(time.monotonic())
        opened = line.connection._socket
        assert opened is not None
        with other.accept()[0] as accepted:
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            wait_for(lambda: not opened.poll(0, zmq.POLLOUT), what="the end of the line")
        line.connection.send_hello()
        while line.connection._socket is not None:  # until the connection has noticed
            assert line.receive() == []
    with manager(run_dir) as new:
        line.connection.maintain(time.monotonic() + READ_INTERVAL)
        assert new.next(protocol.Hello) == HELLO


def test_the_contact_file_is_read_less_often_without_a_manager(line: Line) -> None:
    now = time.monotonic()
    line.connection.maintain(now)
    assert line.connection.next_deadline() == now + READ_INTERVAL
    line.connection.maintain(now + 100)
    assert line.connection.next_deadline() > now + 100 + READ_INTERVAL


def test_an_invalid_contact_file_is_logged_once(line: Line, run_dir: Path) -> None:
    path = run_dir / contact.FILE_NAME
    path.write_text("{}")
    path.chmod(0o600)
    now = time.monotonic()
    for turn in range(3):
        line.connection.maintain(now + turn)
    assert len(line.log) == 1
    assert "cannot be read" in line.log[0]


def test_a_manager_that_expects_no_agents_is_logged(line: Line, run_dir: Path) -> None:
    with manager(run_dir):
        good = contact.read(run_dir)
    assert good is not None
    contact.write(run_dir, msgspec.structs.replace(good, agents=None))
    line.connection.maintain(time.monotonic())
    assert line.connection._socket is None
    assert any("expects no agents" in logged for logged in line.log)


def test_invalid_keys_are_logged_and_not_fatal(line: Line, run_dir: Path) -> None:
    with manager(run_dir):
        good = contact.read(run_dir)
    assert good is not None
    assert good.agents is not None
    bad = msgspec.structs.replace(good, agents=msgspec.structs.replace(good.agents, server_key="short"))
    contact.write(run_dir, bad)
    line.connection.maintain(time.monotonic())
    assert len(line.log) == 1
    assert "cannot be used" in line.log[0]


def test_a_contact_file_is_private_and_is_read_as_it_was_written(run_dir: Path) -> None:
    with manager(run_dir):
        written = contact.read(run_dir)
    assert written is not None
    assert written.pid == os.getpid()
    assert (run_dir / contact.FILE_NAME).stat().st_mode & 0o777 == 0o600
    contact.remove(run_dir)
    assert contact.read(run_dir) is None
