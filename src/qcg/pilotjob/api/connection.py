"""A connection of the blocking client: a ZeroMQ socket with its monitor, timeouts, and errors in words."""

from __future__ import annotations

import itertools
import math
import time
from contextlib import suppress
from typing import Any

import msgspec
import zmq

from qcg.pilotjob.api.errors import ConnectionError, InternalError, WrongArgumentsError
from qcg.pilotjob.description.json_input import InvalidJson
from qcg.pilotjob.wire.contact import MOST_BYTES, ClientsContact
from qcg.pilotjob.wire.descriptors import NEEDED_BY_CLIENT, TooFewDescriptors, require
from qcg.pilotjob.wire.keys import use_client_keys
from qcg.pilotjob.wire.parts import request_frames
from qcg.pilotjob.wire.routing import is_ipv6
from qcg.pilotjob.wire.sockets import CollectableContext, monitor_events

CONNECT_TIMEOUT = 5.0
"""Seconds after which a connection attempt has failed."""
REFUSED_TIMEOUT = 1.0
"""The same when connections are refused: no manager listens there, or it does not accept the keys of this client."""
HEARTBEAT, SILENCE = 1000, 5000
"""Milliseconds between heartbeats, and of silence after which the connection is lost."""
MOST_SOCKETS = 16_384
_WATCHED = (
    zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.DISCONNECTED | zmq.Event.CONNECT_RETRIED
)
_encode = msgspec.json.Encoder().encode


class NoAnswer(Exception):
    """No answer came in time, although the connection is up."""


def make_context() -> zmq.Context[zmq.Socket[bytes]]:
    try:
        require(NEEDED_BY_CLIENT)
    except TooFewDescriptors as error:
        raise InternalError(str(error)) from None
    context = CollectableContext()
    context.set(zmq.MAX_SOCKETS, MOST_SOCKETS)
    return context


class Connection:
    """A socket and the state of its connection."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], kind: int, found: ClientsContact, address: str) -> None:
        self.address = address
        self.socket: zmq.Socket[bytes] = context.socket(kind)
        self.monitor: zmq.Socket[bytes] = self.socket.get_monitor_socket(_WATCHED)
        self._connected = False
        self._failed = False
        self._since = time.monotonic()
        self._problem: ConnectionError | None = None
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.IPV6, is_ipv6(address)),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, 0),
            (zmq.HEARTBEAT_IVL, HEARTBEAT),
            (zmq.HEARTBEAT_TIMEOUT, SILENCE),
        ):
            self.socket.setsockopt(option, value)
        if found.server_key:
            use_client_keys(self.socket, found)
        try:
            self.socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise WrongArgumentsError(f"{address} is no address of a manager: {error.strerror}") from None

    def send(self, frames: list[bytes]) -> None:
        """Send a message. Without a peer it is dropped: a plain send would block, and `check` reports the reason."""
        with suppress(zmq.Again):
            self.socket.send_multipart(frames, zmq.NOBLOCK)

    def check(self) -> None:
        """Raise ConnectionError when there is no manager, or no longer one."""
        for event, _ in monitor_events(self.monitor):
            if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._connected = True
            elif event == zmq.Event.HANDSHAKE_FAILED_AUTH:
                self._problem = not_connected(f"the manager at {self.address} does not let this client in")
            elif not self._connected:
                self._failed = True
            elif event == zmq.Event.DISCONNECTED:
                self._problem = ConnectionError(f"the manager at {self.address} is gone")
        if self._problem is None and not self._connected and time.monotonic() >= self._since + self._patience:
            self._problem = not_connected(
                f"there is no manager at {self.address}, or it does not let this client in: is it alive, and is its"
                " contact file readable?"
            )
        if self._problem is not None:
            raise copy_of(self._problem)

    def wait(self, seconds: float) -> bool:
        """Wait for a message; returns False after so many seconds. Raises ConnectionError when there is no manager."""
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self.monitor, zmq.POLLIN)
        deadline = time.monotonic() + seconds
        while True:
            limit = deadline if self._connected else min(deadline, self._since + self._patience)
            ready = dict(poller.poll(math.ceil(max(limit - time.monotonic(), 0) * 1000)))
            if self.socket in ready:
                return True
            try:
                self.check()
            except ConnectionError:
                if self.socket.poll(0):
                    return True  # it arrived before the connection was lost
                raise
            if time.monotonic() >= deadline:
                return False

    @property
    def _patience(self) -> float:
        return REFUSED_TIMEOUT if self._failed else CONNECT_TIMEOUT

    def close(self) -> None:
        with suppress(zmq.ZMQError):  # the context may be terminating
            self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close()


class Requests:
    """Sends requests over one connection, one after the other. Numbers match answers, so that late ones are dropped."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], found: ClientsContact) -> None:
        self.connection = Connection(context, zmq.DEALER, found, found.address)
        self._numbers = itertools.count(1)

    def ask(self, body: bytes, timeout: float) -> dict[str, Any]:
        """Return the answer; raises NoAnswer when none comes in time."""
        number = b"%d" % next(self._numbers)
        self.connection.send([number, b"", *request_frames(body)])
        deadline = time.monotonic() + timeout
        while self.connection.wait(max(deadline - time.monotonic(), 0)):
            frames = self.connection.socket.recv_multipart()
            if frames[0] == number:
                return decode_answer(frames[-1])
        raise NoAnswer

    def close(self) -> None:
        self.connection.close()


def no_answer(address: str, timeout: float) -> ConnectionError:
    return ConnectionError(f"the manager at {address} did not answer within {timeout:g} s")


def not_connected(sentence: str) -> ConnectionError:
    """The error of a connection that was never established: no request has been sent."""
    error = ConnectionError(sentence)
    error.perhaps_sent = False
    return error


def copy_of(error: ConnectionError) -> ConnectionError:
    """A copy of an error for another caller: an exception object collects a traceback each time it is raised."""
    other = ConnectionError(str(error))
    other.perhaps_sent = error.perhaps_sent
    return other


def encode_request(request: dict[str, Any]) -> bytes:
    try:
        body = _encode(request)
    except (TypeError, ValueError) as error:
        raise WrongArgumentsError(f"the request {InvalidJson.because(error)}") from None
    if len(body) > MOST_BYTES:
        raise WrongArgumentsError(
            f"the request has {len(body)} bytes, and {MOST_BYTES} are the most; submit the jobs in several parts"
        )
    return body


def decode_answer(body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InternalError(f"the manager answered with something that is not JSON: {error}") from None
    if not isinstance(answer, dict) or not isinstance(answer.get("code"), int):
        raise InternalError("the manager answered with something that has no code")
    return answer
