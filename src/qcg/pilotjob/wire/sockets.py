"""ZeroMQ contexts of clients, and reading from sockets: all messages that have arrived, the events of monitors, readers
for asyncio.

The descriptor of a ZeroMQ socket is edge-triggered: it becomes readable when something happens after the socket was
last asked, and stays silent about messages that arrived while the socket was used for something else, such as a send.
"""

from __future__ import annotations

import _thread
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import zmq

if TYPE_CHECKING:
    import asyncio  # agents and clients without an event loop do not load it

_MONITOR_EVENT = struct.Struct("=Hi")


class CollectableContext(zmq.Context[zmq.Socket[bytes]]):
    """A context that garbage collection can end together with its open sockets, without blocking the program."""

    def __del__(self) -> None:
        # A plain context would wait here for sockets that the same collection of a reference cycle closes later. Not a
        # `threading.Thread`: the collection may interrupt code that holds the locks of that module.
        if not self.closed:
            with suppress(RuntimeError):  # the interpreter is ending
                _thread.start_new_thread(self.term, ())


def receive_all(socket: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    """The messages that have arrived, until there is none or the socket is closed."""
    while not socket.closed:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        yield frames


def monitor_events(monitor: zmq.Socket[bytes]) -> Iterator[tuple[int, int]]:
    """The events of a socket's monitor since the last call: the kind, and an error or a descriptor."""
    for event, _ in receive_all(monitor):
        kind, value = _MONITOR_EVENT.unpack(event)
        yield kind, value


def is_readable(socket: zmq.Socket[bytes]) -> bool:
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


class SocketReader:
    """Calls a function in an asyncio loop when messages have arrived at a ZeroMQ socket.

    The function has to receive all messages, or to call `call_soon` for the rest.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: zmq.Socket[bytes], receive: Callable[[], None]) -> None:
        self._loop = loop
        self._socket = socket
        self._receive = receive
        self._is_due = False
        loop.add_reader(socket, self._call)
        self.check()

    def check(self) -> None:
        """Look for messages that the descriptor does not signal; to be called after each send."""
        if is_readable(self._socket):
            self.call_soon()

    def call_soon(self) -> None:
        """Call the function in the next turn of the loop, once for all calls of this one."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._call_if_due)

    def close(self) -> None:
        """To be called before the socket is closed."""
        self._is_due = False
        self._loop.remove_reader(self._socket)

    def _call_if_due(self) -> None:
        if self._is_due:
            self._call()

    def _call(self) -> None:
        self._is_due = False
        self._receive()
