"""Heartbeats of an agent over a second connection, sent and answered while file systems hang.

The thread that sends them uses no file. A shared file system that hangs stops the agent, its manager, or both. That is
no reason to end jobs, and the heartbeats tell it from a network that is cut.
"""

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
        self._contact = contact if contact.pulse else None
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
        line: zmq.Socket[bytes] | None = None
        led_to: AgentsContact | None = None
        heard = 0.0
        while not self._closed:
            now = time.monotonic()
            wanted = self._contact
            if line is not None and (wanted is not led_to or now - heard >= AGENT_SILENCE):
                line.close(linger=0)
                line = None
            if line is None and wanted is not None:
                line, led_to, heard = _line(context, wanted), wanted, now
            if line is not None:
                # If another process answers there by now, nothing can be sent; the next connection may be better.
                with suppress(zmq.Again):
                    line.send_multipart([self._name, repr(now).encode()], zmq.NOBLOCK)
            heard = max(heard, self._listen(line, now + AGENT_HEARTBEAT))
        if line is not None:
            line.close(linger=0)
        context.term()

    def _listen(self, line: zmq.Socket[bytes] | None, until: float) -> float:
        """Receive answers until then. Returns when the last one came; 0 when none came."""
        heard = 0.0
        poller = zmq.Poller()
        poller.register(self._woken.fileno(), zmq.POLLIN)
        if line is not None:
            poller.register(line, zmq.POLLIN)
        while not self._closed and (left := until - time.monotonic()) > 0:
            ready = dict(poller.poll(int(left * 1000) + 1))
            if line is not None and line in ready:
                self._fence.renew(float(line.recv()))
                heard = time.monotonic()
        return heard


def _line(context: zmq.Context[zmq.Socket[bytes]], contact: AgentsContact) -> zmq.Socket[bytes]:
    line = context.socket(zmq.DEALER)
    line.setsockopt(zmq.IPV6, is_ipv6(contact.pulse))
    use_client_keys(line, contact)
    line.connect(contact.pulse)
    return line
