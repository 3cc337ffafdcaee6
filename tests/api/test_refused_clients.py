"""A client whose keys are refused gets an error, even before its first request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("run"), "--nodes", "1") as service:
        yield service


@pytest.fixture(params=["without keys", "with a wrong key"])
def refused(service: Served, request: pytest.FixtureRequest) -> ClientsContact:
    if request.param == "without keys":
        return ClientsContact(service.contact.address, service.contact.publisher)
    other = make_keys()
    return msgspec.structs.replace(
        service.contact, client_public=other.client_public, client_secret=other.client_secret
    )


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context = make_context()
    yield context
    context.destroy(linger=0)


def wait_until_refused(socket: zmq.Socket[bytes]) -> None:
    """The client has no connection any more, and does not try again."""
    wait_for(lambda: not socket.poll(0, zmq.POLLOUT), what="the refusal")


def test_a_client_refused_before_its_first_request_raises_an_error(
    refused: ClientsContact, context: zmq.Context[zmq.Socket[bytes]]
):
    requests = Requests(context, refused)
    wait_until_refused(requests.connection.socket)
    with pytest.raises(ConnectionError, match="does not let this client in"):
        requests.ask(QUESTION, PATIENCE)
    requests.close()


def test_an_asyncio_client_refused_before_its_first_request_raises_an_error(
    refused: ClientsContact, context: zmq.Context[zmq.Socket[bytes]]
):
    async def scenario() -> None:
        requests = AsyncRequests(context, refused)
        wait_until_refused(requests._connection._connection.socket)
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
            wait_until_refused(self.socket)

    monkeypatch.setattr(async_connection, "Connection", RefusedLine)

    async def scenario() -> None:
        requests = AsyncRequests(context, refused)
        with pytest.raises(ConnectionError, match="does not let this client in"):
            await requests.ask(QUESTION, PATIENCE)
        requests.close(ConnectionError("over"))

    asyncio.run(scenario())
