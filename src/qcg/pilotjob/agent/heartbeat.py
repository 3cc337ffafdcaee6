"""Heartbeats of an agent over a second connection, sent and answered while file systems hang.

The thread that sends them uses no file. A shared file system that hangs stops the agent, its manager, or both. That is
no reason to end jobs: heartbeats distinguish a hanging file system from a broken network."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import zmq

from qcg.pilotjob.agent.fence import Fence
from qcg.pilotjob.wire.contact import AgentsContact
from qcg.pilotjob.wire.keys import use_client_keys
from qcg.pilotjob.wire.routing import is_ipv6
from qcg.pilotjob.wire.timing import AGENT_HEARTBEAT, AGENT_SILENCE


class Heartbeat:
    def __init__(self, name: str, fence: Fence) -> None:
        self._name = name.encode()
        self._fence = fence
        self._contact: AgentsContact | None = None
        """Replaced by one thread, read by the other."""
        self._woken, self._wakes = socket.socketpair()
        self._closed = False
        self._thread: threading.Thread | None = None

    def follow(self, contact: AgentsContact) -> None:
        """Send heartbeats to the manager of this contact from now on."""
        self._contact = contact if contact.heartbeat_address else None
        if self._contact is not None and self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._wakes.send(b"\0")
        if self._thread is not None:
            self._thread.join()
        self._woken.close()
        self._wakes.close()

    def _beat(self) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        connection: zmq.Socket[bytes] | None = None
        connected_to: AgentsContact | None = None
        heard = 0.0
        while not self._closed:
            now = time.monotonic()
            wanted = self._contact
            if connection is not None and (wanted is not connected_to or now - heard >= AGENT_SILENCE):
                connection.close(linger=0)
                connection = None
            if connection is None and wanted is not None:
                connection, connected_to, heard = _connect(context, wanted), wanted, now
            if connection is not None:
                # If another process answers there by now, nothing can be sent; the next connection may be better.
                with suppress(zmq.Again):
                    connection.send_multipart([self._name, repr(now).encode()], zmq.NOBLOCK)
            heard = max(heard, self._listen(connection, now + AGENT_HEARTBEAT))
        if connection is not None:
            connection.close(linger=0)
        context.term()

    def _listen(self, connection: zmq.Socket[bytes] | None, until: float) -> float:
        """Receive answers until this time. Returns the time of the last answer; 0 when none came."""
        heard = 0.0
        poller = zmq.Poller()
        poller.register(self._woken.fileno(), zmq.POLLIN)
        if connection is not None:
            poller.register(connection, zmq.POLLIN)
        while not self._closed and (left := until - time.monotonic()) > 0:
            ready = dict(poller.poll(int(left * 1000) + 1))
            if connection is not None and connection in ready:
                self._fence.renew(float(connection.recv()))
                heard = time.monotonic()
        return heard


def _connect(context: zmq.Context[zmq.Socket[bytes]], contact: AgentsContact) -> zmq.Socket[bytes]:
    connection = context.socket(zmq.DEALER)
    connection.setsockopt(zmq.IPV6, is_ipv6(contact.heartbeat_address))
    use_client_keys(connection, contact)
    connection.connect(contact.heartbeat_address)
    return connection
