"""Only workers with the keys of their executor can connect."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest
import zmq

from qcg.pilotjob.executor_api.calls import Outcome
from qcg.pilotjob.executor_api.endpoint import (
    HELLO,
    Answer,
    Endpoint,
    Hello,
    WorkersContact,
    answer_frames,
    read_contact,
    worker_socket,
)
from qcg.pilotjob.wire import connection_limiter
from qcg.pilotjob.wire.parts import PART
from tests.support.connections import is_closed
from tests.support.waiting import wait_for

PATIENCE = 60_000


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    context: zmq.Context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[tuple[Endpoint, zmq.Poller, WorkersContact]]:
    poller = zmq.Poller()
    door = Endpoint("127.0.0.1", poller)
    door.write_contact(tmp_path / "contact.json", [])
    yield door, poller, read_contact(tmp_path / "contact.json")
    door.close()


def plain(context: zmq.Context, contact: WorkersContact) -> zmq.Socket:
    client = context.socket(zmq.DEALER)
    client.setsockopt_string(zmq.IDENTITY, "stranger")
    return client


def wrong_server_key(context: zmq.Context, contact: WorkersContact) -> zmq.Socket:
    other = zmq.curve_keypair()[0].decode()
    return worker_socket(context, msgspec.structs.replace(contact, server_key=other), "stranger")


def wrong_client_key(context: zmq.Context, contact: WorkersContact) -> zmq.Socket:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return worker_socket(
        context, msgspec.structs.replace(contact, client_public=public, client_secret=secret), "stranger"
    )


def receive_next(door: Endpoint, poller: zmq.Poller) -> list[object]:
    received: list[object] = []
    while not received:
        assert poller.poll(PATIENCE)
        received += door.receive()
    return received


@pytest.mark.parametrize("stranger", [plain, wrong_server_key, wrong_client_key])
def test_messages_of_an_unauthenticated_peer_are_ignored(
    door: tuple[Endpoint, zmq.Poller, WorkersContact], context: zmq.Context, stranger
):
    opened, poller, contact = door
    with stranger(context, contact) as refused, worker_socket(context, contact, "w1") as line:
        for client in (refused, line):
            client.setsockopt(zmq.LINGER, 0)
            client.connect(contact.address)
            with suppress(zmq.Again):  # a peer that was refused at once has no connection to send to
                client.send(HELLO, zmq.NOBLOCK)
        assert receive_next(opened, poller) == [Hello("w1")]
        # The unauthenticated peer has connected first, and may have connected again.
        poller.poll(300)
        assert opened.receive() == []


def test_invalid_messages_are_ignored(door: tuple[Endpoint, zmq.Poller, WorkersContact], context: zmq.Context):
    opened, poller, contact = door
    with worker_socket(context, contact, "w1") as line:
        line.connect(contact.address)
        line.send_multipart([b"what", b"is", b"this"])
        line.send(HELLO)
        assert receive_next(opened, poller) == [Hello("w1")]


def test_a_large_result_arrives_as_it_was_sent(door: tuple[Endpoint, zmq.Poller, WorkersContact], context: zmq.Context):
    opened, poller, contact = door
    value = bytes(number % 251 for number in range(5 * PART + 3))
    with worker_socket(context, contact, "w1") as line:
        line.connect(contact.address)
        line.send_multipart(answer_frames(b"7", Outcome(True, value, 1.5)))
        assert receive_next(opened, poller) == [Answer("w1", 7, Outcome(True, value, 1.5))]


def test_connections_without_keys_are_limited(
    door: tuple[Endpoint, zmq.Poller, WorkersContact], context: zmq.Context, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection_limiter, "MOST_PENDING", 4)
    opened, poller, contact = door
    host, _, port = contact.address.removeprefix("tcp://").rpartition(":")
    with ExitStack() as strangers, worker_socket(context, contact, "w1") as line:
        connections = [strangers.enter_context(socket.create_connection((host, int(port)))) for _ in range(20)]
        for connection in connections:
            connection.setblocking(False)

        def are_closed() -> bool:
            poller.poll(0)
            opened.receive()
            return sum(map(is_closed, connections)) == 16

        wait_for(are_closed, what="all but four to be closed")
        line.connect(contact.address)
        line.send(HELLO)
        assert receive_next(opened, poller) == [Hello("w1")]
