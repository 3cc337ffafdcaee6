"""Limits the connections of peers that have not shown a key yet, and of all peers together.

ZeroMQ accepts connections for as long as the process has descriptors, and tries in a busy loop when it has none. Its
monitor reports which connections it accepted, but not which of them completed the handshake. The kernel counts the
bytes that each peer was sent, and only a peer with keys is sent the last message of the handshake.

When there are too many connections without keys, the oldest are closed. A handshake takes milliseconds, so a client
with keys gets in even while others open connections all the time.
"""

from __future__ import annotations

import logging
import resource
import socket
import struct
import time
from contextlib import suppress

from zmq import Event, Socket

from qcg.pilotjob.wire.sockets import monitor_events

log = logging.getLogger(__name__)

RESERVED = 64
"""Descriptors that are never used for connections: files, pipes and sockets of the process itself."""
MOST_PENDING = 1024
"""Number of connections without keys at the same time, however many descriptors there are."""
FEWEST = 8
"""Connections that are kept open even when the limit of descriptors is lower than `RESERVED`."""
AFTER_GREETING = 64
"""Bytes of the greeting, which each peer is sent. On a socket without keys, only ZeroMQ peers are sent more."""
AFTER_HANDSHAKE = 270
"""More bytes than a peer is sent that fails the CURVE handshake (greeting 64, WELCOME 170, ERROR about 12), fewer than
one that completes it (READY about 67 more)."""
QUIET = 60.0
"""Seconds without closed connections after which the next ones are logged again."""
_ACKED = struct.Struct("=120xQ")
"""`tcpi_bytes_acked` in the `struct tcp_info` of Linux, from 4.1 on."""
_SENT = struct.Struct("=200xQQ")
"""`tcpi_bytes_sent`, and how many of them were sent again, from 4.19 on."""


class ListeningSocket:
    """A listening socket, as the limiter tells its connections from others."""

    def __init__(self, *, keys: bool) -> None:
        self.handshake = AFTER_HANDSHAKE if keys else AFTER_GREETING
        """Bytes that a peer is sent at most while its handshake is not complete."""


class ConnectionLimiter:
    """The connections of all listening sockets of a process; for one thread."""

    def __init__(self, share: float = 0.5, *, logs: bool = True) -> None:
        """`share`: the part of all connections that may be without keys."""
        self._share = share
        self._logs = logs
        self._pending: dict[tuple[ListeningSocket, int], None] = {}
        """Connections that are not known to be authenticated, by descriptor; the oldest first."""
        self._authenticated: dict[tuple[ListeningSocket, int], None] = {}
        self._closed = 0.0
        """When connections were closed last, in monotonic seconds."""

    def take(self, listening: ListeningSocket, kind: int, descriptor: int) -> None:
        """An event of the socket's monitor."""
        if kind == Event.ACCEPTED:
            self._authenticated.pop((listening, descriptor), None)
            self._pending[listening, descriptor] = None
        elif kind == Event.DISCONNECTED:
            self._pending.pop((listening, descriptor), None)
            self._authenticated.pop((listening, descriptor), None)

    def enforce(self) -> None:
        """Close connections until there are not too many. ZeroMQ notices and frees their descriptors."""
        most = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED, FEWEST)
        most_pending = min(MOST_PENDING, int(self._share * most))
        closed = False
        while self._pending and (
            len(self._pending) > most_pending or len(self._pending) + len(self._authenticated) > most
        ):
            listening, descriptor = next(iter(self._pending))
            del self._pending[listening, descriptor]
            if _has_completed(descriptor, listening.handshake):
                self._authenticated[listening, descriptor] = None
            else:
                _close(descriptor)
                closed = True
        # Too many authenticated clients: the latest ones have to try again later.
        for listening, descriptor in list(self._authenticated)[most:]:
            del self._authenticated[listening, descriptor]
            _close(descriptor)
            closed = True
        if closed and self._logs:
            self._log_closing(most_pending, most)

    def _log_closing(self, most_pending: int, most: int) -> None:
        now = time.monotonic()
        if not self._closed or now - self._closed > QUIET:
            log.warning(
                "too many connections: the oldest without keys are closed. %d may wait for their handshake, and %d may"
                " be open in all, by the limit of open files (ulimit -n)",
                most_pending,
                most,
            )
        self._closed = now


class LimitedSocket:
    """A listening socket with keys and a limiter of its own, for the one thread that polls `monitor`."""

    def __init__(self, socket: Socket[bytes], limiter: ConnectionLimiter) -> None:
        """To be called before the socket listens, so that no connection is missed."""
        self._socket = socket
        self._limiter = limiter
        self._listening = ListeningSocket(keys=True)
        self.monitor: Socket[bytes] = socket.get_monitor_socket(Event.ACCEPTED | Event.DISCONNECTED)

    def limit_connections(self) -> None:
        """To be called whenever `monitor` has events."""
        for kind, descriptor in monitor_events(self.monitor):
            self._limiter.take(self._listening, kind, descriptor)
        self._limiter.enforce()

    def close(self) -> None:
        """To be called before the socket is closed."""
        self._socket.disable_monitor()
        self.monitor.close()


def _borrow(descriptor: int) -> socket.socket | None:
    """The socket of ZeroMQ behind a descriptor, to be detached after use; None when it is closed already.

    ZeroMQ may close it at any moment, and its number may be used again. At worst another peer's connection is closed,
    and that peer connects again. No duplicate is made: there may be no free descriptor.
    """
    try:
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    except OSError:
        return None


def _close(descriptor: int) -> None:
    connection = _borrow(descriptor)
    if connection is not None:
        with suppress(OSError):  # the peer has gone
            connection.shutdown(socket.SHUT_RDWR)
        connection.detach()


def _has_completed(descriptor: int, handshake: int) -> bool:
    """Whether the peer was sent more bytes than those of an unfinished handshake. True where the kernel does not count
    them: no connection is closed on suspicion."""
    connection = _borrow(descriptor)
    if connection is None:
        return False
    try:
        tcp_info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return False
    finally:
        connection.detach()
    if len(tcp_info) >= _SENT.size:
        sent, again = _SENT.unpack_from(tcp_info)
        return bool(sent - again > handshake)
    # Bytes sent a moment ago may not be acknowledged yet. A peer that is closed for that reason connects again.
    return len(tcp_info) < _ACKED.size or bool(_ACKED.unpack_from(tcp_info)[0] > handshake)
