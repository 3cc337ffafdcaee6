"""The limit of connections: strangers cannot use up all of them, and each place is freed again."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.dashboard.access import Access
from qcg.pilotjob.dashboard.connections import Connections
from qcg.pilotjob.dashboard.server import MOST_CONNECTIONS, DashboardServer, listen_on_port
from qcg.pilotjob.watch.open import open_run
from tests.support.dashboard import Dashboard
from tests.support.waiting import wait_for

pytestmark = pytest.mark.leaves_open("the dashboard of the module")


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Both ends of four connections."""
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(4)]
        for pair in pairs:
            for end in pair:
                end.settimeout(10)
                stack.enter_context(end)
        yield pairs


def is_open(end: socket.socket) -> bool:
    end.settimeout(0)
    try:
        return end.recv(1) != b""
    except BlockingIOError:
        return True


def test_a_new_connection_replaces_the_oldest_stranger(pairs: list[tuple[socket.socket, socket.socket]]):
    connections = Connections(3)
    for ours, _ in pairs[:3]:
        assert connections.enter(ours)
    connections.set_known(pairs[0][0])
    assert connections.enter(pairs[3][0])
    assert [is_open(theirs) for _, theirs in pairs] == [True, False, True, True]
    assert len(connections) == 3


def test_known_clients_are_not_replaced(pairs: list[tuple[socket.socket, socket.socket]]):
    connections = Connections(3)
    for ours, _ in pairs[:3]:
        assert connections.enter(ours)
        connections.set_known(ours)
    assert not connections.enter(pairs[3][0])
    connections.leave(pairs[1][0])
    assert connections.enter(pairs[3][0])
    assert [is_open(theirs) for _, theirs in pairs] == [True] * 4


def test_a_connection_that_was_replaced_takes_no_place_later(pairs: list[tuple[socket.socket, socket.socket]]):
    connections = Connections(1)
    assert connections.enter(pairs[0][0])
    assert connections.enter(pairs[1][0])
    connections.set_known(pairs[0][0])  # its request had been sent
    connections.set_thread(pairs[0][0])
    connections.leave(pairs[0][0])
    assert len(connections) == 1


class WithoutThreads(DashboardServer):
    """On a machine where no further thread can be started."""

    def process_request(self, request: Any, client_address: Any) -> None:
        raise RuntimeError("can't start new thread")


def test_a_connection_without_a_thread_gives_its_place_back(ended: Path):
    with closing(open_run(ended)) as run, closing(listen_on_port(0)) as listening:
        server = WithoutThreads(listening, run, Access())
        with socket.create_connection(listening.getsockname(), timeout=30) as client:
            server.handle_request()
            assert client.recv(1) == b""
        assert len(server.connections) == 0
        server.api.close()


def strangers(stack: ExitStack, dashboard: Dashboard, number: int) -> list[socket.socket]:
    host, port = dashboard.host.split(":")
    return [stack.enter_context(socket.create_connection((host, int(port)), timeout=30)) for _ in range(number)]


def keep(stack: ExitStack, dashboard: Dashboard) -> http.client.HTTPConnection:
    """A connection of the owner that stays open after its first request."""
    connection = dashboard.connection()
    stack.callback(connection.close)
    ask(connection, dashboard)
    return connection


def ask(connection: http.client.HTTPConnection, dashboard: Dashboard) -> None:
    connection.request("HEAD", "/assets/main.js", headers={"Cookie": dashboard.cookie})
    response = connection.getresponse()
    response.read()
    assert response.status == 200


def test_silent_strangers_do_not_keep_the_owner_out(dashboard: Dashboard):
    with ExitStack() as stack:
        own = keep(stack, dashboard)
        strangers(stack, dashboard, 2 * MOST_CONNECTIONS)
        assert dashboard.get("api/summary").status == 200
        ask(own, dashboard)


def test_strangers_are_cut_off_soon(dashboard: Dashboard):
    with ExitStack() as stack:
        own = keep(stack, dashboard)
        began = time.monotonic()
        silent, slow, wrong = strangers(stack, dashboard, 3)
        slow.sendall(b"GET / HTTP/1.1\r\n")
        wrong.sendall(f"GET / HTTP/1.1\r\nHost: {dashboard.host}\r\nHost: {dashboard.host}\r\n\r\n".encode())
        for connection in (silent, slow, wrong):
            while connection.recv(4096):
                pass
        assert time.monotonic() - began < 20
        ask(own, dashboard)


def test_too_many_connections_of_the_owner_are_refused_with_a_sentence(dashboard: Dashboard):
    with ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            keep(stack, dashboard)
        (one_more,) = strangers(stack, dashboard, 1)
        assert one_more.recv(100).startswith(b"HTTP/1.1 503 ")
    wait_for(lambda: dashboard.get("api/summary").status == 200, what="the dashboard to answer again")
