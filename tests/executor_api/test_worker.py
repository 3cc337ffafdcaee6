"""A worker that finds another program at the address of its executor."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import zmq

from qcg.pilotjob.common.environment import EXECUTOR_CONTACT, EXECUTOR_WORKER
from qcg.pilotjob.executor_api.endpoint import WorkersContact
from qcg.pilotjob.executor_api.worker import work
from qcg.pilotjob.wire.keys import make_keys
from tests.support.waiting import wait_for


def test_a_worker_exits_when_another_program_answers_at_the_address_of_its_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The other program has not sent anything yet."""
    keys = make_keys()
    connect = zmq.Socket.connect
    with ExitStack() as opened:
        other = opened.enter_context(socket.create_server(("127.0.0.1", 0)))

        def connect_and_be_refused(line: zmq.Socket[bytes], address: str) -> None:
            connect(line, address)
            if address.startswith("tcp:"):
                accepted = opened.enter_context(other.accept()[0])
                accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                wait_for(lambda: not line.poll(0, zmq.POLLOUT), what="the end of the line")

        monkeypatch.setattr(zmq.Socket, "connect", connect_and_be_refused)
        monkeypatch.setattr(sys, "path", list(sys.path))
        place = tmp_path / "contact.json"
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        place.write_bytes(
            msgspec.json.encode(
                WorkersContact(address, keys.server_public, keys.client_public, keys.client_secret, sys.path)
            )
        )
        monkeypatch.setenv(EXECUTOR_CONTACT, str(place))
        monkeypatch.setenv(EXECUTOR_WORKER, "w1")
        work()
