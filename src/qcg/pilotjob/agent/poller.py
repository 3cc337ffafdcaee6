"""Waits for descriptors and ZeroMQ sockets at once, and asks a socket only when its descriptor says that it is worth
it.

The poller of ZeroMQ asks all its sockets at every look, which costs more than all else in the turn of an agent that
waits for its jobs.
"""

from __future__ import annotations

import select

import zmq

from qcg.pilotjob.wire.sockets import is_readable


class Poller:
    def __init__(self) -> None:
        self._poll = select.poll()
        self._sockets: dict[int, zmq.Socket[bytes]] = {}
        """By descriptor, which signals edges only: something has happened since the socket was asked last."""
        self._doubtful: set[zmq.Socket[bytes]] = set()
        """These may have taken notice of a message while they did something else, so that no edge tells of it."""

    def register(self, what: zmq.Socket[bytes] | int) -> None:
        if isinstance(what, int):
            self._poll.register(what, select.POLLIN)
        else:
            descriptor = int(what.getsockopt(zmq.FD))
            self._sockets[descriptor] = what
            self._poll.register(descriptor, select.POLLIN)
            self._doubtful.add(what)

    def unregister(self, socket: zmq.Socket[bytes]) -> None:
        """Before it is closed. One that was never registered is passed over."""
        self._doubtful.discard(socket)
        for descriptor in [number for number, known in self._sockets.items() if known is socket]:
            del self._sockets[descriptor]
            self._poll.unregister(descriptor)

    def doubt(self, socket: zmq.Socket[bytes]) -> None:
        """Something was sent over it."""
        self._doubtful.add(socket)

    def poll(self, milliseconds: int) -> set[zmq.Socket[bytes] | int]:
        """What can be read. Everything that is there must be read from a socket that is told here."""
        ready: set[zmq.Socket[bytes] | int] = set()
        if self._doubtful:
            ready.update(socket for socket in self._doubtful if is_readable(socket))
            self._doubtful.clear()
        for descriptor, _ in self._poll.poll(0 if ready else milliseconds):
            socket = self._sockets.get(descriptor)
            if socket is None:
                ready.add(descriptor)
            elif is_readable(socket):
                ready.add(socket)
        return ready
