"""The manager's sockets: one context, one authenticator, and a line in the log for everybody who is not let in."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

import msgspec
import zmq
from zmq.auth.asyncio import AsyncioAuthenticator

from qcg.pilotjob.wire import descriptors
from qcg.pilotjob.wire.auth_log import PAUSE, WATCHED, Doorman
from qcg.pilotjob.wire.gate import Gate, ListeningSocket
from qcg.pilotjob.wire.keys import Keys
from qcg.pilotjob.wire.monitor import events_of
from qcg.pilotjob.wire.parts import ENCRYPTION, PART
from qcg.pilotjob.wire.routing import is_ipv6

log = logging.getLogger(__name__)

Frames = list[bytes]
Receiver = Callable[[list[Frames]], None]

HEARTBEAT = 5000
SILENCE = 15000
HANDSHAKE = 5000
"""Milliseconds after which a peer that has not shown its keys is sent away."""
BACKLOG = 1024


class BindError(Exception):
    """No port to listen on; the message says which was wanted and why not."""


class Limits(msgspec.Struct, frozen=True):
    """What peers may ask of this process. A larger frame ends its connection before it is read."""

    frame: int = PART
    """Bytes of one frame."""
    open_frame: int = PART
    """The same on a socket without keys, where everybody is let in."""
    explained: bool = False
    """Connections that end before a message arrives are logged, with the limit that may be the reason."""
    unsent: int = 0
    """Messages that are kept for one slow peer; later ones are dropped for it. 0: all are kept."""
    unread: int = 0
    """Messages of one peer that are taken from the network before they can be handled; 0: any number."""
    turn: int = 1 << 30
    """Messages that are handled in one turn of the loop."""
    turn_bytes: int = 1 << 30
    """Bytes after which a turn takes no further message."""


FOR_AGENTS = Limits()


class Hub:
    def __init__(self) -> None:
        descriptors.take_all()
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._allowed: dict[str, bytes] = {}
        self._authenticator = AsyncioAuthenticator(self._context)
        self._authenticator.start()
        self._doorman = Doorman()
        self._gate = Gate()
        self._ports: list[Port] = []

    def callback(self, domain: str, key: bytes) -> bool:
        """Asked by the authenticator for each connection that knows the manager's own key."""
        return self._allowed.get(domain) == key

    def router(
        self, domain: str, keys: Keys | None, address: str, on_messages: Receiver, limits: Limits = FOR_AGENTS
    ) -> Port:
        """A socket for requests. Without keys it is open to everybody who can reach it."""
        return self._port(self._context.socket(zmq.ROUTER), domain, keys, address, on_messages, limits)

    def publisher(
        self, domain: str, keys: Keys | None, address: str, welcome: bytes, on_messages: Receiver, limits: Limits
    ) -> Port:
        """A socket for events; `welcome` greets new subscribers, `on_messages` gets subscriptions."""
        socket = self._context.socket(zmq.XPUB)
        socket.setsockopt(zmq.XPUB_WELCOME_MSG, welcome)
        return self._port(socket, domain, keys, address, on_messages, limits)

    def _port(
        self,
        socket: zmq.Socket[bytes],
        domain: str,
        keys: Keys | None,
        address: str,
        on_messages: Receiver,
        limits: Limits,
    ) -> Port:
        socket.setsockopt(zmq.LINGER, 1000)
        socket.setsockopt(zmq.IPV6, is_ipv6(address))
        socket.setsockopt(zmq.BACKLOG, BACKLOG)
        socket.setsockopt(zmq.MAXMSGSIZE, limits.open_frame if keys is None else limits.frame + ENCRYPTION)
        socket.setsockopt(zmq.SNDHWM, limits.unsent)
        socket.setsockopt(zmq.RCVHWM, limits.unread)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE)
        if keys is not None:
            self._allowed[domain] = keys.client_public.encode()
            self._authenticator.configure_curve_callback(domain, self)
            socket.setsockopt_string(zmq.ZAP_DOMAIN, domain)
            socket.curve_server = True
            socket.curve_publickey = keys.server_public.encode()
            socket.curve_secretkey = keys.server_secret.encode()
        watch = Watch(self._loop, socket, self._doorman, self._gate, keys=keys is not None, explains=limits.explained)
        port = Port(self._loop, socket, address, on_messages, watch, limits)
        self._ports.append(port)
        return port

    def close(self) -> None:
        """Calling it again does nothing."""
        if self._context.closed:
            return
        for port in self._ports:
            port.close()
        self._doorman.close()
        self._authenticator.stop()
        self._context.term()


class Watch:
    """Follows the connections of one listening socket, through its monitor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: zmq.Socket[bytes],
        doorman: Doorman,
        gate: Gate,
        *,
        keys: bool,
        explains: bool = False,
    ) -> None:
        """To be called before the socket listens, so that no connection is missed. `explains`: log the possible reason
        when a connection with keys ends before a message has arrived."""
        self._loop = loop
        self._socket = socket
        self._doorman = doorman
        self._gate = gate
        self._listening = ListeningSocket(keys=keys)
        self._explains = explains
        self._heard: set[int] = set()
        """Descriptors of connections that a message has come from."""
        self._cut_off: set[int] = set()
        """Descriptors of connections with keys that ended, and no message has come from them."""
        self._monitor: zmq.Socket[bytes] = socket.get_monitor_socket(WATCHED)
        loop.add_reader(self._monitor, self._drain)
        # A descriptor signals only what comes after somebody has looked in vain.
        self._drain()

    def heard(self, descriptor: int) -> None:
        self._heard.add(descriptor)
        self._cut_off.discard(descriptor)

    def close(self) -> None:
        """Before the socket is closed."""
        self._loop.remove_reader(self._monitor)
        self._drain()
        self._socket.disable_monitor()
        self._monitor.close()

    def _drain(self) -> None:
        for kind, value in events_of(self._monitor):
            was_let_in = self._doorman.take(kind, value)
            self._gate.take(self._listening, kind, value)
            if kind == zmq.Event.ACCEPTED:
                self._heard.discard(value)
            elif kind == zmq.Event.DISCONNECTED and was_let_in and value not in self._heard:
                self._cut_off.add(value)
                self._loop.call_later(PAUSE, self._explain)
        self._gate.enforce()

    def _explain(self) -> None:
        """Later, because messages that arrived before the end may be read after it."""
        if self._cut_off and self._explains:
            log.warning(
                "%d connections with keys ended before a message had arrived; a frame of more than %d bytes ends its"
                " connection: large requests have to be sent in parts (see docs/reference/network.md)",
                len(self._cut_off),
                PART,
            )
        self._cut_off.clear()


class Port:
    """One socket. What has arrived is handed over together, so that a burst is one turn of the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: zmq.Socket[bytes],
        address: str,
        on_messages: Receiver,
        watch: Watch,
        limits: Limits,
    ) -> None:
        self._loop = loop
        self._socket = socket
        self._on_messages = on_messages
        self._watch = watch
        self._limits = limits
        self._paused = False
        self._drain_is_due = False
        try:
            _bind(socket, address)
        except BindError:
            self._close_sockets()
            raise
        self.address: str = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        loop.add_reader(socket, self._drain)
        # A descriptor signals only what comes after somebody has looked in vain.
        self._drain_later()

    def send(self, frames: Frames) -> None:
        """To a peer that is gone, or that has too much unread, the message is dropped."""
        self._socket.send_multipart(frames, zmq.NOBLOCK, copy=len(frames[-1]) < 65536)
        self._drain_later()

    def pause(self) -> None:
        """Leave what arrives in the network."""
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._drain_later()

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._close_sockets()

    def _close_sockets(self) -> None:
        self._watch.close()
        self._socket.close()

    def _drain_later(self) -> None:
        """The descriptor signals edges only: what arrived unnoticed would be left lying."""
        if int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._drain_next_turn()

    def _drain_next_turn(self) -> None:
        """Once, however often it is asked for: what is taken in a turn is limited."""
        if not self._drain_is_due:
            self._drain_is_due = True
            self._loop.call_soon(self._drain_if_due)

    def _drain_if_due(self) -> None:
        if self._drain_is_due:
            self._drain()

    def _drain(self) -> None:
        self._drain_is_due = False
        messages: list[Frames] = []
        room = self._limits.turn_bytes
        while not (self._socket.closed or self._paused):
            if len(messages) == self._limits.turn or room <= 0:
                self._drain_next_turn()
                break
            try:
                frames = self._receive()
            except zmq.Again:
                break
            messages.append(frames)
            room -= sum(map(len, frames))
        if messages:
            self._on_messages(messages)

    def _receive(self) -> Frames:
        if not self._limits.explained:
            return self._socket.recv_multipart(zmq.NOBLOCK)
        first = self._socket.recv(zmq.NOBLOCK, copy=False)
        self._watch.heard(int(first.get(zmq.SRCFD)))
        return [first.bytes, *(self._socket.recv_multipart() if first.more else ())]


def _bind(socket: zmq.Socket[bytes], address: str) -> None:
    """`tcp://host:*`, `tcp://host:4000`, or `tcp://host:4000-4999` for any free port of a range."""
    base, _, port = address.rpartition(":")
    first, dash, last = port.partition("-")
    if not dash:
        _try_to_bind(socket, address)
        return
    ports = range(int(first), int(last) + 1)
    for number in random.sample(ports, len(ports)):
        try:
            _try_to_bind(socket, f"{base}:{number}")
        except BindError:
            continue
        return
    raise BindError(f"{address}: none of these ports is free")


def _try_to_bind(socket: zmq.Socket[bytes], address: str) -> None:
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        # It adds the address in brackets.
        raise BindError(f"{address}: {error.strerror.partition(' (addr=')[0]}") from None
