"""Only workers with the keys of their executor get in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import zmq

from qcg.pilotjob.executor_api.door import HELLO, Door, Hello, WorkersContact, line_to, read_contact

PATIENCE = 60_000


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    context: zmq.Context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[tuple[Door, zmq.Poller, WorkersContact]]:
    poller = zmq.Poller()
    door = Door("127.0.0.1", poller)
    door.write_contact(tmp_path / "contact.json", [])
    yield door, poller, read_contact(tmp_path / "contact.json")
    door.close()


def plain(context: zmq.Context, contact: WorkersContact) -> zmq.Socket:
    socket = context.socket(zmq.DEALER)
    socket.setsockopt_string(zmq.IDENTITY, "stranger")
    return socket


def wrong_server_key(context: zmq.Context, contact: WorkersContact) -> zmq.Socket:
    other = zmq.curve_keypair()[0].decode()
    return line_to(context, msgspec.structs.replace(contact, server_key=other), "stranger")


def wrong_client_key(context: zmq.Context, contact: WorkersContact) -> zmq.Socket:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return line_to(context, msgspec.structs.replace(contact, client_public=public, client_secret=secret), "stranger")


def hear(door: Door, poller: zmq.Poller) -> list[object]:
    heard: list[object] = []
    while not heard:
        assert poller.poll(PATIENCE)
        heard += door.receive()
    return heard


@pytest.mark.parametrize("stranger", [plain, wrong_server_key, wrong_client_key])
def test_a_stranger_is_not_heard(door: tuple[Door, zmq.Poller, WorkersContact], context: zmq.Context, stranger):
    opened, poller, contact = door
    with stranger(context, contact) as refused, line_to(context, contact, "w1") as line:
        for socket in (refused, line):
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(contact.address)
            with suppress(zmq.Again):  # one that was refused at once has nobody to send to any more
                socket.send(HELLO, zmq.NOBLOCK)
        assert hear(opened, poller) == [Hello("w1")]
        # The stranger has knocked first, and may have knocked again.
        poller.poll(300)
        assert opened.receive() == []


def test_what_is_no_message_of_a_worker_is_left_alone(
    door: tuple[Door, zmq.Poller, WorkersContact], context: zmq.Context
):
    opened, poller, contact = door
    with line_to(context, contact, "w1") as line:
        line.connect(contact.address)
        line.send_multipart([b"what", b"is", b"this"])
        line.send(HELLO)
        assert hear(opened, poller) == [Hello("w1")]
