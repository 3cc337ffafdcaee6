"""An agent's line to its manager: found through the contact file, made anew whenever it breaks or moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import Contact, ContactError

BEAT = 2.0
SILENCE = 5 * BEAT
LOOK = 0.5
"""Seconds between looks at the contact file while there is no manager."""
SELDOM = 2.0
SELDOM_AFTER = 60.0
"""Many agents on a shared file system look less often when their manager does not come back soon."""


class Connection:
    def __init__(self, run_dir: Path, hello: protocol.Hello, poller: zmq.Poller, log: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._hello = hello
        self._poller = poller
        """Watches this line, whatever sockets it has just now."""
        self._log = log
        self._context = zmq.Context()
        self._contact: Contact | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._complaint = ""
        self.up = False
        """The manager has welcomed this agent over this line."""
        self._down_since = time.monotonic()
        self._opened = 0.0
        self._heard = 0.0
        self._said = 0.0
        self._next_look = 0.0

    def next_deadline(self) -> float:
        if not self.up:
            return self._next_look
        return min(self._said + BEAT, self._heard + SILENCE)

    def keep(self, now: float) -> None:
        """Beat, notice silence, and follow the contact file while there is nobody at the other end."""
        if self.up:
            if now - self._heard >= SILENCE:
                self._log("the manager is silent; looking for it")
                self._break(now)
            elif now - self._said >= BEAT:
                self.send(protocol.Beat())
        elif now >= self._next_look:
            self._next_look = now + (LOOK if now - self._down_since < SELDOM_AFTER else SELDOM)
            self._look(now)

    def welcomed(self) -> None:
        # The line may have broken right after the welcome.
        self.up = self._socket is not None

    def say_hello(self) -> None:
        self.up = False
        self.send(self._hello)

    def send(self, message: protocol.FromAgent) -> None:
        if self._socket is not None:
            self._socket.send(protocol.encode(message), zmq.NOBLOCK)
            self._said = time.monotonic()

    def receive(self, ready: dict[object, int]) -> list[protocol.FromManager]:
        """All that has arrived. `ready` is what the poller saw."""
        messages: list[protocol.FromManager] = []
        if self._socket is not None and self._socket in ready:
            self._heard = time.monotonic()
            for body in _drain(self._socket):
                try:
                    messages.append(protocol.decode_from_manager(body))
                except msgspec.DecodeError as error:
                    self._log(f"a message from the manager could not be read: {error}")
        if self._monitor is not None and self._monitor in ready:
            # It tells one thing only: the other end has closed the line, or died.
            recv_monitor_message(self._monitor)
            self._break(time.monotonic())
        return messages

    def close(self) -> None:
        """Let the last words out, for a second at most."""
        self._close(linger=1000)
        self._context.term()

    def _look(self, now: float) -> None:
        try:
            found = contact.read(self._run_dir)
            if found is None or (self._socket and found == self._contact and now - self._opened < SILENCE):
                return  # nobody there, or still knocking
            self._close(linger=0)
            self._open(found, now)
        except ContactError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                self._log(self._complaint)

    def _open(self, found: Contact, now: float) -> None:
        agents = found.agents
        socket = self._socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.RECONNECT_IVL, int(LOOK * 1000))
        self._monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        try:
            socket.curve_serverkey = agents.server_key.encode()
            socket.curve_publickey = agents.client_public.encode()
            socket.curve_secretkey = agents.client_secret.encode()
            socket.connect(agents.address)
        except zmq.ZMQError as error:
            self._close(linger=0)
            raise ContactError(f"the contact file of {self._run_dir} leads nowhere: {error}") from None
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        self._contact = found
        self._opened = now
        self.say_hello()

    def _break(self, now: float) -> None:
        """The line is gone. Whatever was on its way will be in the report over the next one."""
        if self.up:
            self._down_since = now
        self._close(linger=0)
        # At once, unless this line has only just been made: no storm when it breaks again and again.
        self._next_look = max(now, self._opened + LOOK)

    def _close(self, linger: int) -> None:
        self.up = False
        if self._socket is not None:
            self._socket.disable_monitor()
        for socket in (self._socket, self._monitor):
            if socket is not None:
                if socket in self._poller:
                    self._poller.unregister(socket)
                socket.close(linger)
        self._socket = self._monitor = None


def _drain(socket: zmq.Socket[bytes]) -> list[bytes]:
    bodies = []
    while True:
        try:
            bodies.append(socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            return bodies
