"""An agent's second line to its manager: it says no more than that this process is there, and hears the same.

It is a thread that touches no file. A shared file system that hangs stops the agent, or its manager, or both: that is
no reason to end jobs, and only those who can tell it from a cut know that.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import zmq

from qcg.pilotjob.agent.fence import Fence
from qcg.pilotjob.wire.contact import AgentsContact
from qcg.pilotjob.wire.routing import is_ipv6

BEAT = 2.0
SILENCE = 3 * BEAT
"""Seconds without an answer after which a fresh line is tried."""


class Pulse:
    def __init__(self, name: str, fence: Fence) -> None:
        self._name = name.encode()
        self._fence = fence
        self._contact: AgentsContact | None = None
        """Replaced by one thread, looked at by the other."""
        self._woken, self._wakes = socket.socketpair()
        self._closed = False
        self._thread: threading.Thread | None = None

    def follow(self, contact: AgentsContact) -> None:
        """From now on, this is where the manager is."""
        self._contact = contact if contact.pulse else None
        if self._contact is not None and self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
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
            if line is not None and (wanted is not led_to or now - heard >= SILENCE):
                line.close(linger=0)
                line = None
            if line is None and wanted is not None:
                line, led_to, heard = _line(context, wanted), wanted, now
            if line is not None:
                # Where somebody else answers by now there is nobody to send to, and the next line may fare better.
                with suppress(zmq.Again):
                    line.send_multipart([self._name, repr(now).encode()], zmq.NOBLOCK)
            heard = max(heard, self._listen(line, now + BEAT))
        if line is not None:
            line.close(linger=0)
        context.term()

    def _listen(self, line: zmq.Socket[bytes] | None, until: float) -> float:
        """When the manager was heard last; 0 when it was not."""
        heard = 0.0
        poller = zmq.Poller()
        poller.register(self._woken.fileno(), zmq.POLLIN)
        if line is not None:
            poller.register(line, zmq.POLLIN)
        while not self._closed and (left := until - time.monotonic()) > 0:
            ready = dict(poller.poll(int(left * 1000) + 1))
            if line is not None and line in ready:
                self._fence.known_at(float(line.recv()))
                heard = time.monotonic()
        return heard


def _line(context: zmq.Context[zmq.Socket[bytes]], contact: AgentsContact) -> zmq.Socket[bytes]:
    line = context.socket(zmq.DEALER)
    line.setsockopt(zmq.IPV6, is_ipv6(contact.pulse))
    line.curve_serverkey = contact.server_key.encode()
    line.curve_publickey = contact.client_public.encode()
    line.curve_secretkey = contact.client_secret.encode()
    line.connect(contact.pulse)
    return line
