"""The choice of connections to close when there are too many, with real connections and without ZeroMQ."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
from collections.abc import Iterator

import pytest
from zmq import Event

from qcg.pilotjob.wire import connection_limiter
from qcg.pilotjob.wire.connection_limiter import AFTER_HANDSHAKE, ConnectionLimiter, ListeningSocket
from tests.support.connections import is_closed
from tests.support.waiting import wait_for


class Peers:
    """Connections to one listening socket: both ends."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.listening = ListeningSocket(keys=True)
        self.theirs: list[socket.socket] = []
        self.ours: list[socket.socket] = []

    def connect(self, limiter: ConnectionLimiter, *, with_keys: bool = False) -> None:
        theirs = self._stack.enter_context(socket.create_connection(self._listener.getsockname()))
        ours = self._stack.enter_context(self._listener.accept()[0])
        ours.sendall(bytes(AFTER_HANDSHAKE + 20 if with_keys else 64))
        self.theirs.append(theirs)
        self.ours.append(ours)
        limiter.take(self.listening, Event.ACCEPTED, ours.fileno())

    def closed(self) -> list[int]:
        """Numbers of the connections that the limiter has closed."""
        return [number for number, peer in enumerate(self.theirs) if is_closed(peer)]


@pytest.fixture
def peers() -> Iterator[Peers]:
    with contextlib.ExitStack() as stack:
        yield Peers(stack)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most four connections without keys, and at most eight in all."""
    monkeypatch.setattr(connection_limiter, "RESERVED", resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 8)


@pytest.mark.usefixtures("few")
def test_the_oldest_connections_without_keys_are_closed(peers: Peers, caplog: pytest.LogCaptureFixture):
    guard = ConnectionLimiter()
    for _ in range(4):
        peers.connect(guard)
    guard.enforce()
    assert peers.closed() == []
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            peers.connect(guard)
            guard.enforce()
    wait_for(lambda: peers.closed() == [0, 1, 2], what="the oldest to be closed")
    assert [record.message for record in caplog.records] == [
        "too many connections: the oldest without keys are closed. 4 may wait for their handshake, and 8 may be open in"
        " all, by the limit of open files (ulimit -n)"
    ]


@pytest.mark.usefixtures("few")
def test_connections_with_keys_are_kept(peers: Peers):
    guard = ConnectionLimiter()
    for _ in range(3):
        peers.connect(guard, with_keys=True)
    for _ in range(20):
        peers.connect(guard)
        guard.enforce()
    wait_for(lambda: peers.closed() == list(range(3, 19)), what="strangers to be closed")


@pytest.mark.usefixtures("few")
def test_the_latest_connections_are_closed_when_all_have_keys(peers: Peers):
    guard = ConnectionLimiter()
    for _ in range(10):
        peers.connect(guard, with_keys=True)
        guard.enforce()
    wait_for(lambda: peers.closed() == [8, 9], what="the last to be closed")


@pytest.mark.usefixtures("few")
def test_a_connection_that_has_ended_makes_room(peers: Peers):
    guard = ConnectionLimiter()
    for _ in range(4):
        peers.connect(guard)
    guard.take(peers.listening, Event.DISCONNECTED, peers.ours[3].fileno())
    peers.connect(guard)
    guard.enforce()
    assert peers.closed() == []


@pytest.mark.usefixtures("few")
def test_the_same_descriptor_of_another_socket_is_another_connection(peers: Peers):
    """The events of two listening sockets may be read in another order than they happened."""
    guard = ConnectionLimiter()
    for _ in range(4):
        peers.connect(guard)
    guard.take(ListeningSocket(keys=True), Event.DISCONNECTED, peers.ours[0].fileno())
    peers.connect(guard)
    guard.enforce()
    wait_for(lambda: peers.closed() == [0], what="the oldest to be closed")


@pytest.mark.usefixtures("few")
def test_a_closed_descriptor_or_one_of_no_socket_is_ignored(peers: Peers):
    guard = ConnectionLimiter()
    with open("/dev/null") as file:
        guard.take(peers.listening, Event.ACCEPTED, file.fileno())
        guard.take(peers.listening, Event.ACCEPTED, 999_999)
        for _ in range(6):
            peers.connect(guard)
        guard.enforce()
    wait_for(lambda: peers.closed() == [0, 1], what="the oldest to be closed")
