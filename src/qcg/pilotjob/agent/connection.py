"""An agent's line to its manager: found through the contact file, made anew whenever it breaks or moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq

from qcg.pilotjob.agent import contact, protocol
from qcg.pilotjob.agent.contact import Contact, ContactError

BEAT = 2.0
SILENCE = 5 * BEAT
LOOK = 0.5
"""Seconds between looks at the contact file while there is no manager."""


class Connection:
    def __init__(self, run_dir: Path, log: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._log = log
        self._context = zmq.Context()
        self._contact: Contact | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._complaint = ""
        self.up = False
        """The manager has welcomed this agent over this line."""
        self._heard = 0.0
        self._said = 0.0
        self._next_look = 0.0

    @property
    def socket(self) -> zmq.Socket[bytes] | None:
        return self._socket

    def next_deadline(self) -> float:
        if not self.up:
            return self._next_look
        return min(self._said + BEAT, self._heard + SILENCE)

    def keep(self, now: float, hello: protocol.Hello) -> None:
        """Beat, notice silence, and follow the contact file while there is nobody at the other end."""
        if self.up:
            if now - self._heard > SILENCE:
                self._log("the manager is silent; looking for it")
                self._close()
            elif now - self._said >= BEAT:
                self.send(protocol.Beat())
        elif now >= self._next_look:
            self._next_look = now + LOOK
            self._look(now, hello)

    def _look(self, now: float, hello: protocol.Hello) -> None:
        try:
            found = contact.read(self._run_dir)
        except ContactError as error:
            if str(error) != self._complaint:
                self._log(str(error))
                self._complaint = str(error)
            return
        if found is None:
            return
        if self._socket is not None and found == self._contact and now - self._heard < SILENCE:
            return  # still knocking
        self._close()
        self._contact = found
        self._open(found)
        self._heard = now
        self.send(hello)

    def _open(self, found: Contact) -> None:
        agents = found.agents
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 1000)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.curve_serverkey = agents.server_key.encode()
        socket.curve_publickey = agents.client_public.encode()
        socket.curve_secretkey = agents.client_secret.encode()
        socket.connect(agents.address)
        self._socket = socket

    def send(self, message: protocol.FromAgent) -> None:
        if self._socket is not None:
            self._socket.send(protocol.encode(message), zmq.NOBLOCK)
            self._said = time.monotonic()

    def receive(self) -> list[protocol.FromManager]:
        """All that has arrived."""
        messages: list[protocol.FromManager] = []
        while self._socket is not None:
            try:
                body = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._heard = time.monotonic()
            try:
                messages.append(protocol.decode_from_manager(body))
            except msgspec.DecodeError as error:
                self._log(f"a message from the manager could not be read: {error}")
        return messages

    def _close(self) -> None:
        self.up = False
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None

    def close(self) -> None:
        """Let the last words out, for a second at most."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._context.term()
