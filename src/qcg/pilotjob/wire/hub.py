"""The manager's sockets: one context, one authenticator, and a line in the log for everybody who is not let in."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import zmq
from zmq.auth.asyncio import AsyncioAuthenticator
from zmq.utils.monitor import parse_monitor_message

from qcg.pilotjob.wire.keys import Keys

log = logging.getLogger(__name__)

Frames = list[bytes]
Receiver = Callable[[list[Frames]], None]

HEARTBEAT = 5000
SILENCE = 15000
REFUSALS_EVERY = 1.0
"""At most one line about refused connections in so many seconds: a hostile peer must not fill the disk."""
_REFUSALS = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_AUTH


class BindError(Exception):
    """No port to listen on; the message says which was wanted and why not."""


class Hub:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._allowed: dict[str, bytes] = {}
        self._authenticator = AsyncioAuthenticator(self._context)
        self._authenticator.start()
        self._ports: list[Port] = []
        self._refused = 0
        self._refusals_told = 0.0

    def callback(self, domain: str, key: bytes) -> bool:
        """Asked by the authenticator for each connection that knows the manager's own key."""
        return self._allowed.get(domain) == key

    def router(self, domain: str, keys: Keys | None, address: str, on_messages: Receiver) -> Port:
        """A socket for requests. Without keys it is open to everybody who can reach it."""
        return self._port(self._context.socket(zmq.ROUTER), domain, keys, address, on_messages)

    def publisher(self, domain: str, keys: Keys | None, address: str, welcome: bytes, on_messages: Receiver) -> Port:
        """A socket for events; `welcome` greets new subscribers, `on_messages` gets subscriptions."""
        socket = self._context.socket(zmq.XPUB)
        socket.setsockopt(zmq.XPUB_WELCOME_MSG, welcome)
        return self._port(socket, domain, keys, address, on_messages)

    def _port(
        self, socket: zmq.Socket[bytes], domain: str, keys: Keys | None, address: str, on_messages: Receiver
    ) -> Port:
        socket.setsockopt(zmq.LINGER, 1000)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE)
        if keys is not None:
            self._allowed[domain] = keys.client_public.encode()
            self._authenticator.configure_curve_callback(domain, self)
            socket.setsockopt_string(zmq.ZAP_DOMAIN, domain)
            socket.curve_server = True
            socket.curve_publickey = keys.server_public.encode()
            socket.curve_secretkey = keys.server_secret.encode()
        port = Port(self._loop, socket, address, on_messages, self._refusal)
        self._ports.append(port)
        return port

    def _refusal(self) -> None:
        self._refused += 1
        now = time.monotonic()
        if now - self._refusals_told >= REFUSALS_EVERY:
            log.warning("%d connections without the keys of this run were refused", self._refused)
            self._refused = 0
            self._refusals_told = now

    def close(self) -> None:
        for port in self._ports:
            port.close()
        self._authenticator.stop()
        self._context.term()


class Port:
    """One socket. All that has arrived is handed over at once, so that a burst is one turn of the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: zmq.Socket[bytes],
        address: str,
        on_messages: Receiver,
        on_refusal: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._socket = socket
        self._on_messages = on_messages
        self._on_refusal = on_refusal
        _bind(socket, address)
        self._monitor = socket.get_monitor_socket(_REFUSALS)
        self.address: str = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        loop.add_reader(socket, self._drain)
        loop.add_reader(self._monitor, self._drain_monitor)

    def send(self, frames: Frames) -> None:
        """To a peer that is gone, the message is dropped."""
        self._socket.send_multipart(frames, zmq.NOBLOCK, copy=len(frames[-1]) < 65536)
        # The descriptor signals edges only: what arrived while sending would be left lying.
        if int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._loop.call_soon(self._drain)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_reader(self._monitor)
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()

    def _drain(self) -> None:
        messages = []
        while not self._socket.closed:
            try:
                messages.append(self._socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                break
        if messages:
            self._on_messages(messages)

    def _drain_monitor(self) -> None:
        while not self._monitor.closed:
            try:
                parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                break
            self._on_refusal()


def _bind(socket: zmq.Socket[bytes], address: str) -> None:
    """`tcp://host:*`, `tcp://host:4000`, or `tcp://host:4000-4999` for any free port of a range."""
    base, _, port = address.rpartition(":")
    first, dash, last = port.partition("-")
    try:
        if dash:
            socket.bind_to_random_port(base, int(first), int(last) + 1, max_tries=1000)
        else:
            socket.bind(address)
    except zmq.ZMQError as error:
        socket.close()
        raise BindError(f"{address}: {error.strerror}") from None
