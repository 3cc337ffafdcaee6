"""A client whose keys are refused gets an error, even before its first request."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
import zmq

from qcg.pilotjob.api import async_connection
from qcg.pilotjob.api.async_connection import AsyncRequests
from qcg.pilotjob.api.connection import Connection, Requests, make_context
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.wire.contact import ClientsContact
from qcg.pilotjob.wire.keys import make_keys
from tests.support.serving import PATIENCE, Served, served
from tests.support.waiting import wait_for

QUESTION = b'{"request": "status"}'
SIGNATURE_AND_VERSION = b"\xff" + bytes(8) + b"\x7f\x03"
LENGTH_OF_GREETING = 64
"""Bytes, in version 3 of ZeroMQ's protocol."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("run"), "--nodes", "1") as service:
        yield service


class ClosingListener:
    """Ends each connection after its greeting, before it says that it wants keys.

    A manager does the same when the whole greeting of the client arrives before it has sent the end of its own.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            with connection, suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(SIGNATURE_AND_VERSION)
                connection.recv(LENGTH_OF_GREETING, socket.MSG_WAITALL)


@pytest.fixture
def closing_listener() -> Iterator[ClosingListener]:
    listener = ClosingListener()
    yield listener
    listener.close()


@pytest.fixture(params=["without keys", "without keys, before it reads why", "with a wrong key"])
def refused(service: Served, closing_listener: ClosingListener, request: pytest.FixtureRequest) -> ClientsContact:
    if request.param == "without keys":
        return ClientsContact(service.contact.address, service.contact.publisher)
    if request.param == "without keys, before it reads why":
        return ClientsContact(closing_listener.address, closing_listener.address)
    other = make_keys()
    return msgspec.structs.replace(
        service.contact, client_public=other.client_public, client_secret=other.client_secret
    )


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context = make_context()
    yield context
    context.destroy(linger=0)


def wait_until_refused(connection: Connection, contact: ClientsContact) -> None:
    """The handshake has failed, and the client has not read why.

    ZeroMQ gives up a connection whose keys are refused. It tries again when the manager ended the connection before
    the client had read that the manager wants keys, which depends on how fast the two sides read.
    """
    if contact.server_key:
        wait_for(lambda: not connection.socket.poll(0, zmq.POLLOUT), what="the end of the connection")
    else:
        wait_for(lambda: connection.monitor.poll(0), what="the refusal")


def test_a_client_refused_before_its_first_request_raises_an_error(
    refused: ClientsContact, context: zmq.Context[zmq.Socket[bytes]]
):
    requests = Requests(context, refused)
    wait_until_refused(requests.connection, refused)
    with pytest.raises(ConnectionError, match="does not let this client in"):
        requests.ask(QUESTION, PATIENCE)
    requests.close()


def test_an_asyncio_client_refused_before_its_first_request_raises_an_error(
    refused: ClientsContact, context: zmq.Context[zmq.Socket[bytes]]
):
    async def scenario() -> None:
        requests = AsyncRequests(context, refused)
        wait_until_refused(requests._connection._connection, refused)
        with pytest.raises(ConnectionError, match="does not let this client in"):
            await requests.ask(QUESTION, PATIENCE)
        requests.close(ConnectionError("over"))

    asyncio.run(scenario())


def test_an_asyncio_client_refused_before_its_subscription_raises_an_error(
    refused: ClientsContact, context: zmq.Context[zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
):
    class RefusedLine(Connection):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            wait_until_refused(self, refused)

    monkeypatch.setattr(async_connection, "Connection", RefusedLine)

    async def scenario() -> None:
        requests = AsyncRequests(context, refused)
        with pytest.raises(ConnectionError, match="does not let this client in"):
            await requests.ask(QUESTION, PATIENCE)
        requests.close(ConnectionError("over"))

    asyncio.run(scenario())
