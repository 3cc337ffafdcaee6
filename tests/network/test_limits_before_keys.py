"""Unauthenticated peers cannot use up memory or descriptors; large requests of clients arrive in parts."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from qcg.pilotjob.agent.pidfile import read_agent_pid, signal_agent
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import Manager
from qcg.pilotjob.interfaces.network import MOST_PARTS
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import MOST_BYTES
from qcg.pilotjob.wire.parts import MARK, PART
from tests.support.pilot import job
from tests.support.serving import NO_ANSWER, PATIENCE, Served, served
from tests.support.waiting import wait_for

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
LARGE_COMMAND = 0x06
TOO_MANY = "too many connections"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("run"), "--nodes", "1") as service:
        yield service


def addresses(service: Served) -> list[str]:
    found = contact.read(service.run_dir)
    assert found is not None
    assert found.clients is not None
    assert found.agents is not None
    return [found.clients.address, found.clients.publisher, found.agents.address]


def connect(address: str) -> socket.socket:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def announce(connection: socket.socket, announced: int, sent: int) -> None:
    """Send a greeting and the start of one large frame, as much as the manager accepts."""
    with contextlib.suppress(OSError):
        connection.sendall(GREETING + bytes([LARGE_COMMAND]) + announced.to_bytes(8, "big"))
        for _ in range(0, sent, PART):
            connection.sendall(bytes(min(PART, sent)))


def test_large_frames_of_peers_without_keys_are_not_kept(service: Served):
    service.forget_most_memory()
    before = service.memory()
    with contextlib.ExitStack() as strangers:
        for address in addresses(service):
            for _ in range(4):
                announce(strangers.enter_context(connect(address)), announced=60 << 20, sent=30 << 20)
        assert service.ask("resourcesInfo")["code"] == 0
        assert service.most_memory() < before + 20


def test_many_small_frames_of_peers_without_keys_take_a_bounded_amount_of_memory(service: Served):
    service.forget_most_memory()
    before = service.memory()
    with contextlib.ExitStack() as strangers:
        for number in range(400):
            announce(strangers.enter_context(connect(addresses(service)[number % 3])), announced=PART, sent=PART // 2)
        assert service.ask("resourcesInfo")["code"] == 0
        assert service.most_memory() < before + 400 * PART / 2**20 + 20


@contextlib.contextmanager
def _with_soft_limit(limit: int) -> Iterator[None]:
    """Jobs and agents get the limit of open files that the manager was started with."""
    given = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, given[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, given)


def is_idle(service: Served) -> bool:
    before = service.computed()
    time.sleep(0.3)  # the time in which the manager is to have nothing to do
    return service.computed() - before < 0.03


@pytest.mark.parametrize("limit", [256, 1024])
def test_1800_connections_without_keys_leave_room_for_clients_and_agents(tmp_path: Path, limit: int):
    with contextlib.ExitStack() as strangers:
        with _with_soft_limit(200):
            service = strangers.enter_context(served(tmp_path, "--nodes", "1"))
        ports = addresses(service)
        resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        before = service.computed()
        for number in range(1800):
            strangers.enter_context(connect(ports[number % 3]))
        wait_for(lambda: TOO_MANY in service.log() and is_idle(service), what="the manager to have nothing to do")
        assert service.computed() - before < 2.0
        manager = Manager.of_run(service.run_dir, {"log_file": ""})
        try:
            manager.submit(Jobs().add(name="a", exec="true"))
            assert manager.wait4("a") == {"a": "SUCCEED"}
        finally:
            manager.cleanup()
        connected = service.log().count("connected from")
        agent = read_agent_pid(service.run_dir, "local")
        assert agent is not None
        signal_agent(agent, signal.SIGKILL)
        wait_for(lambda: service.log().count("connected from") > connected, what="the next agent")
        service.submit(job("b", "true"))
        service.wait("b", "SUCCEED")
        assert service.log().count(TOO_MANY) == 1


def test_a_request_in_parts_is_answered(service: Served):
    names = ["x" * 100] * 2000
    body = json.dumps({"request": "jobStatus", "jobNames": names}).encode()
    assert len(body) > 3 * PART
    parts = [body[start : start + 1000] for start in range(0, len(body), 1000)]
    with service.client() as client:
        client.send(MARK, *parts)
        answer = client.receive()
    assert answer is not None
    assert json.loads(answer[-1])["data"]["jobs"]["x" * 100]["status"] != 0


@pytest.mark.parametrize("parts", [[b"x" * PART] * (MOST_BYTES // PART + 1), [b"x"] * (MOST_PARTS + 1)])
def test_a_request_in_too_many_parts_is_refused_with_the_limits(service: Served, parts: list[bytes]):
    with service.client() as client:
        client.send(MARK, *parts)
        answer = client.receive()
    assert answer is not None
    assert json.loads(answer[-1]) == {
        "code": 1,
        "message": f"the request has {sum(map(len, parts))} bytes in {len(parts)} frames; {MOST_BYTES} bytes and"
        f" {MOST_PARTS} frames are the most: submit the jobs in several requests",
    }


def test_one_frame_of_the_largest_size_is_answered(service: Served):
    body = b'{"request": "resourcesInfo"}'
    with service.client() as client:
        client.send(body + b" " * (PART - len(body)))
        answer = client.receive()
    assert answer is not None
    assert json.loads(answer[-1])["code"] == 0


def test_the_log_advises_a_client_with_keys_to_send_a_large_request_in_parts(service: Served):
    sentence = f"a frame of more than {PART} bytes ends its connection: large requests have to be sent in parts"

    def is_told() -> bool:
        with service.client(zmq.DEALER) as client:
            client.send(b"", b" " * (2 * PART))
            assert client.receive(NO_ANSWER) is None
        return sentence in service.log()

    # Not always the first time: while strangers come and go as well, it is not known who was disconnected.
    wait_for(is_told, what="a line in the log")
