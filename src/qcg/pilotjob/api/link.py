"""One connection of a client: requests with an answer in time, or a word about why not."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from qcg.pilotjob.api.errors import ConnectionError, InternalError
from qcg.pilotjob.wire.contact import ClientsContact

CONNECT_TIMEOUT = 5.0
"""Seconds without a connection after which there is no service."""
_WATCHED = (
    zmq.Event.CONNECTED
    | zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.DISCONNECTED
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)
_encode = msgspec.json.Encoder().encode


def open_socket(context: zmq.Context[Any], kind: int, found: ClientsContact, address: str) -> Any:
    """A socket of the manager's clients, not connected yet, so that it can be watched from the start."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 1000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5000)
    if found.server_key:
        socket.curve_serverkey = found.server_key.encode()
        socket.curve_publickey = found.client_public.encode()
        socket.curve_secretkey = found.client_secret.encode()
    return socket


class Line:
    """A socket and what is known of its connection."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], kind: int, found: ClientsContact, address: str) -> None:
        self.address = address
        self.socket: zmq.Socket[bytes] = open_socket(context, kind, found, address)
        self._monitor = self.socket.get_monitor_socket(_WATCHED)
        self._poller = zmq.Poller()
        self._poller.register(self.socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        self._connected = False
        self._since = time.monotonic()
        """Connected, or not, since then."""
        self._lost = False
        self.socket.connect(address)

    def wait(self, seconds: float) -> bool:
        """Until a message is there: True; or so many seconds. `ConnectionError` when there is no service."""
        deadline = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            limit = deadline if self._connected else min(deadline, self._since + CONNECT_TIMEOUT)
            ready = dict(self._poller.poll(math.ceil(max(limit - now, 0) * 1000)))
            if self._monitor in ready:
                self._look()
            if self.socket in ready:
                return True
            if self._lost:
                raise ConnectionError(f"the service at {self.address} is gone")
            now = time.monotonic()
            if not self._connected and now - self._since >= CONNECT_TIMEOUT:
                raise ConnectionError(
                    f"there is no service at {self.address}, or it does not let this client in: is it alive, and is"
                    " its contact file readable?"
                )
            if now >= deadline:
                return False

    def _look(self) -> None:
        while True:
            try:
                event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))["event"]
            except zmq.Again:
                return
            if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._connected = True
            elif event == zmq.Event.DISCONNECTED and self._connected:
                self._lost = True

    def close(self) -> None:
        self.socket.disable_monitor()
        self._monitor.close()
        self.socket.close()


class Requests:
    """Requests over one line, one after the other. Answers that come too late are not mistaken for later ones."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], found: ClientsContact) -> None:
        self.line = Line(context, zmq.DEALER, found, found.address)
        self._numbers = itertools.count(1)

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        number = b"%d" % next(self._numbers)
        self.line.socket.send_multipart([number, b"", _encode(request)])
        deadline = time.monotonic() + timeout
        while self.line.wait(max(deadline - time.monotonic(), 0)):
            frames = self.line.socket.recv_multipart()
            if frames[0] == number:
                return decode_answer(frames[-1])
        raise ConnectionError(f"the service at {self.line.address} did not answer within {timeout:g} s")

    def close(self) -> None:
        self.line.close()


def decode_answer(body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise InternalError(f"the service answered with something that is not JSON: {error}") from None
    if not isinstance(answer, dict) or not isinstance(answer.get("code"), int):
        raise InternalError("the service answered with something that has no code")
    return answer
