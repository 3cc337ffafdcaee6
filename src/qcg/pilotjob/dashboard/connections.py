"""The open connections of the dashboard, limited in number: unauthenticated ones are closed first."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Connections:
    """Connections with their threads. All methods may be called from any thread.

    Every user of the machine can connect to the port. If there are too many connections, a new one replaces the oldest
    one without token or cookie, so that unauthenticated clients cannot exhaust the limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._threads: dict[socket.socket, threading.Thread | None] = {}
        """In the order in which the connections were opened."""
        self._known: set[socket.socket] = set()

    def __len__(self) -> int:
        with self._lock:
            return len(self._threads)

    def enter(self, connection: socket.socket) -> bool:
        """Add a new connection; False when the limit is reached."""
        with self._lock:
            if len(self._threads) >= self._most and not self._close_unauthenticated():
                return False
            self._threads[connection] = None
            return True

    def set_thread(self, connection: socket.socket) -> None:
        """Note that the current thread serves a connection."""
        with self._lock:
            if connection in self._threads:
                self._threads[connection] = threading.current_thread()

    def set_known(self, connection: socket.socket) -> None:
        """Keep a connection whose client has shown the token or the cookie."""
        with self._lock:
            if connection in self._threads:
                self._known.add(connection)

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._remove(connection)

    def end(self, seconds: float) -> None:
        """Shut down all connections, and wait for each of their threads for at most so many seconds."""
        with self._lock:
            left = dict(self._threads)
        for connection in left:
            _shut_down(connection)
        for thread in left.values():
            if thread is not None:
                thread.join(seconds)

    def _close_unauthenticated(self) -> bool:
        for connection in self._threads:
            if connection not in self._known:
                self._remove(connection)
                _shut_down(connection)
                return True
        return False

    def _remove(self, connection: socket.socket) -> None:
        self._threads.pop(connection, None)
        self._known.discard(connection)


def _shut_down(connection: socket.socket) -> None:
    """End a connection; its thread closes the socket."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
