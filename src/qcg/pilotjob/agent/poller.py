"""A poller for descriptors and ZeroMQ sockets that queries a socket only after its descriptor became readable.

`zmq.Poller` queries all its sockets at each poll, which costs more than everything else in the loop of an agent that
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
        """Sockets by descriptor, which is edge-triggered: readable when something happened since the last query."""
        self._to_recheck: set[zmq.Socket[bytes]] = set()
        """Sockets that may have received a message during another operation, which their descriptor does not signal."""

    def register(self, what: zmq.Socket[bytes] | int) -> None:
        if isinstance(what, int):
            self._poll.register(what, select.POLLIN)
        else:
            descriptor = int(what.getsockopt(zmq.FD))
            self._sockets[descriptor] = what
            self._poll.register(descriptor, select.POLLIN)
            self._to_recheck.add(what)

    def unregister(self, socket: zmq.Socket[bytes]) -> None:
        """To be called before a socket is closed. Does nothing for a socket that is not registered."""
        self._to_recheck.discard(socket)
        for descriptor in [number for number, known in self._sockets.items() if known is socket]:
            del self._sockets[descriptor]
            self._poll.unregister(descriptor)

    def recheck(self, socket: zmq.Socket[bytes]) -> None:
        """Query this socket at the next poll. To be called after each send."""
        self._to_recheck.add(socket)

    def poll(self, milliseconds: int) -> set[zmq.Socket[bytes] | int]:
        """The readable descriptors and sockets. The caller has to receive all messages of these sockets."""
        ready: set[zmq.Socket[bytes] | int] = set()
        if self._to_recheck:
            ready.update(socket for socket in self._to_recheck if is_readable(socket))
            self._to_recheck.clear()
        for descriptor, _ in self._poll.poll(0 if ready else milliseconds):
            socket = self._sockets.get(descriptor)
            if socket is None:
                ready.add(descriptor)
            elif is_readable(socket):
                ready.add(socket)
        return ready
