"""Connections of a client: one whose manager ends, one that is not closed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import zmq

from qcg.pilotjob.api.connection import Connection, make_context
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.wire.contact import ClientsContact
from tests.support.serving import PATIENCE
from tests.support.waiting import wait_for


def test_an_answer_that_arrived_before_the_connection_was_lost_is_returned(monkeypatch: pytest.MonkeyPatch):
    """Sockets are polled in turn, so both may have received data between two polls."""
    there, here = zmq.Context(), make_context()
    service = there.socket(zmq.ROUTER)
    service.bind("tcp://127.0.0.1:*")
    address = service.getsockopt_string(zmq.LAST_ENDPOINT)
    connection = Connection(here, zmq.DEALER, ClientsContact(address, ""), address)
    try:
        connection.send([b"question"])
        service.send_multipart([service.recv_multipart()[0], b"answer"])
        wait_for(lambda: connection.socket.poll(0), what="the answer")
        service.close(0)
        there.term()
        look = zmq.Poller.poll

        def look_too_soon(poller: zmq.Poller, timeout: int) -> list[Any]:
            found = look(poller, timeout)
            both = len(poller.sockets) > 1
            return [(socket, events) for socket, events in found if not (both and socket is connection.socket)]

        with monkeypatch.context() as patched:
            patched.setattr(zmq.Poller, "poll", look_too_soon)
            assert connection.wait(PATIENCE)
        assert connection.socket.recv() == b"answer"
        with pytest.raises(ConnectionError, match="is gone"):
            connection.wait(PATIENCE)
    finally:
        connection.close()
        there.destroy(linger=0)
        here.destroy(linger=0)


COLLECTED_PROGRAM = """
import gc, os, time
import zmq
from qcg.pilotjob.api.connection import Connection, make_context
from qcg.pilotjob.wire.contact import ClientsContact

class Study:
    pass

def threads():
    return len(os.listdir("/proc/self/task"))

study, before, address = Study(), threads(), "tcp://127.0.0.1:9"
study.context = make_context()
study.connection = Connection(study.context, zmq.DEALER, ClientsContact(address, ""), address)
study.itself = study
assert threads() > before
del study
gc.collect()
while threads() > before:
    time.sleep(0.01)
"""


def test_garbage_collection_of_an_open_connection_closes_it_without_blocking():
    subprocess.run([sys.executable, "-c", COLLECTED_PROGRAM], check=True, timeout=PATIENCE)
