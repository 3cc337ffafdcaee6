"""The manager's listening sockets: authentication, limits for peers, and a log of refused connections."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator

import msgspec
import zmq

from qcg.pilotjob.wire import descriptors
from qcg.pilotjob.wire.auth_log import PAUSE, WATCHED, AuthenticationLog
from qcg.pilotjob.wire.authenticator import LoopAuthenticator
from qcg.pilotjob.wire.connection_limiter import ConnectionLimiter, ListeningSocket
from qcg.pilotjob.wire.keys import Keys, use_server_keys
from qcg.pilotjob.wire.parts import ENCRYPTION, PART
from qcg.pilotjob.wire.routing import is_ipv6
from qcg.pilotjob.wire.sockets import SocketReader, monitor_events, receive_all
from qcg.pilotjob.wire.timing import HANDSHAKE_TIMEOUT, SOCKET_HEARTBEAT, SOCKET_SILENCE

log = logging.getLogger(__name__)

Frames = list[bytes]
Receiver = Callable[[list[Frames]], None]

BACKLOG = 1024
"""Connections that the kernel keeps for a socket until they are accepted."""


class BindError(Exception):
    """No port to listen on; the message has the wanted port and the error."""


class Limits(msgspec.Struct, frozen=True):
    """Limits on messages of peers. A larger frame ends its connection before it is read."""

    frame: int = PART
    """Bytes of one frame."""
    open_frame: int = PART
    """Bytes of one frame on a socket without keys, where everybody can connect."""
    explained: bool = False
    """Log connections that end before a message arrives, with the limit that may be the reason."""
    unsent: int = 0
    """Messages kept for one slow peer; later ones are dropped for it. 0: all are kept."""
    unread: int = 0
    """Messages of one peer that are read from the network before they can be handled; 0: any number."""
    turn: int = 1 << 30
    """Messages handled in one turn of the loop."""
    turn_bytes: int = 1 << 30
    """Bytes after which a turn handles no further message."""


FOR_AGENTS = Limits()


class Hub:
    def __init__(self) -> None:
        descriptors.raise_limit()
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._allowed: dict[str, bytes] = {}
        self._authenticator = LoopAuthenticator(self._context, self._loop)
        self._authenticator.start()
        self._log = AuthenticationLog()
        self._limiter = ConnectionLimiter()
        self._ports: list[Port] = []

    def callback(self, domain: str, key: bytes) -> bool:
        """Called by the authenticator for each connection that knows the manager's own key."""
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
        socket.setsockopt(zmq.HEARTBEAT_IVL, SOCKET_HEARTBEAT)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SOCKET_SILENCE)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_TIMEOUT)
        if keys is not None:
            self._allowed[domain] = keys.client_public.encode()
            self._authenticator.configure_curve_callback(domain, self)
            socket.setsockopt_string(zmq.ZAP_DOMAIN, domain)
            use_server_keys(socket, keys)
        monitor = ConnectionMonitor(
            self._loop, socket, self._log, self._limiter, keys=keys is not None, explains=limits.explained
        )
        port = Port(self._loop, socket, address, on_messages, monitor, limits)
        self._ports.append(port)
        return port

    def close(self) -> None:
        """Calling it again does nothing."""
        if self._context.closed:
            return
        for port in self._ports:
            port.close()
        self._log.close()
        self._authenticator.stop()
        self._context.term()


class ConnectionMonitor:
    """Follows the connections of one listening socket, through its monitor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: zmq.Socket[bytes],
        authentication_log: AuthenticationLog,
        limiter: ConnectionLimiter,
        *,
        keys: bool,
        explains: bool = False,
    ) -> None:
        """To be called before the socket listens, so that no connection is missed. `explains`: log the possible reason
        when a connection with keys ends before a message has arrived."""
        self._loop = loop
        self._socket = socket
        self._log = authentication_log
        self._limiter = limiter
        self._listening = ListeningSocket(keys=keys)
        self._explains = explains
        self._heard: set[int] = set()
        """Descriptors of connections from which a message has arrived."""
        self._silent: set[int] = set()
        """Descriptors of connections with keys that ended before a message had arrived."""
        self._monitor: zmq.Socket[bytes] = socket.get_monitor_socket(WATCHED)
        self._reader = SocketReader(loop, self._monitor, self._receive)
        self._receive()

    def message_received(self, descriptor: int) -> None:
        self._heard.add(descriptor)
        self._silent.discard(descriptor)

    def close(self) -> None:
        """To be called before the socket is closed."""
        self._reader.close()
        self._receive()
        self._socket.disable_monitor()
        self._monitor.close()

    def _receive(self) -> None:
        for kind, value in monitor_events(self._monitor):
            was_authenticated = self._log.take(kind, value)
            self._limiter.take(self._listening, kind, value)
            if kind == zmq.Event.ACCEPTED:
                self._heard.discard(value)
            elif kind == zmq.Event.DISCONNECTED and was_authenticated and value not in self._heard:
                self._silent.add(value)
                self._loop.call_later(PAUSE, self._explain)
        self._limiter.enforce()

    def _explain(self) -> None:
        """Later, because messages that arrived before the end may be read after it."""
        if self._silent and self._explains:
            log.warning(
                "%d connections with keys ended before a message had arrived; a frame of more than %d bytes ends its"
                " connection: large requests have to be sent in parts (see docs/reference/network.md)",
                len(self._silent),
                PART,
            )
        self._silent.clear()


class Port:
    """One listening socket. Messages that arrive together are handed over together, in one turn of the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: zmq.Socket[bytes],
        address: str,
        on_messages: Receiver,
        monitor: ConnectionMonitor,
        limits: Limits,
    ) -> None:
        self._socket = socket
        self._on_messages = on_messages
        self._monitor = monitor
        self._limits = limits
        self._paused = False
        try:
            _bind(socket, address)
        except BindError:
            self._close_sockets()
            raise
        self.address: str = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._reader = SocketReader(loop, socket, self._receive)

    def send(self, frames: Frames) -> None:
        """Send a message. It is dropped if the port is closed, the peer is gone, or it has too many unread messages."""
        if self._socket.closed:
            return
        self._socket.send_multipart(frames, zmq.NOBLOCK, copy=len(frames[-1]) < 65536)
        self._reader.check()

    def pause(self) -> None:
        """Receive nothing until `resume`; messages stay in the network."""
        self._paused = True

    def resume(self) -> None:
        if self._paused and not self._socket.closed:
            self._paused = False
            self._reader.check()

    def close(self) -> None:
        """Receive nothing more; messages that were sent are still delivered. Calling it again does nothing."""
        if self._socket.closed:
            return
        self._reader.close()
        self._close_sockets()

    def _close_sockets(self) -> None:
        self._monitor.close()
        self._socket.close()

    def _receive(self) -> None:
        messages: list[Frames] = []
        left = self._limits.turn_bytes
        for frames in self._arrived():
            messages.append(frames)
            left -= sum(map(len, frames))
            if len(messages) == self._limits.turn or left <= 0:
                self._reader.call_soon()
                break
        if messages:
            self._on_messages(messages)

    def _arrived(self) -> Iterator[Frames]:
        if self._paused:
            return iter(())
        if not self._limits.explained:
            return receive_all(self._socket)
        return self._received_with_descriptors()

    def _received_with_descriptors(self) -> Iterator[Frames]:
        """Like `receive_all`; reports to the monitor from which connection each message came."""
        while not self._socket.closed:
            try:
                first = self._socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self._monitor.message_received(int(first.get(zmq.SRCFD)))
            yield [first.bytes, *(self._socket.recv_multipart() if first.more else ())]


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
