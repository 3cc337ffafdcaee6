"""The connections of a client to its manager, shared by all threads of a process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from qcg.pilotjob.api.connection import Requests, make_context
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.api.events import Events
from qcg.pilotjob.api.target import Target

_CLOSED = "this manager object was cleaned up and cannot be used any more"


class ConnectionPool:
    """Hands out a connection for each request. A forked process makes new connections: sockets cannot be shared."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.closed = False
        self.answered = False
        """Whether the manager has answered any request."""
        self._begin()
        _everywhere.add(self)

    def _begin(self) -> None:
        self._context = make_context()
        self._idle: list[Requests] = []
        self._events: weakref.WeakSet[Events] = weakref.WeakSet()
        self._lock = threading.Lock()

    def begin_in_child(self) -> None:
        """Replace the connections after a fork, without closing them: the parent uses the same sockets."""
        _left_behind.append((self._context, self._idle, list(self._events)))
        self._begin()

    def ask(self, body: bytes, timeout: float) -> dict[str, Any]:
        """Return the answer to a request; raises NoAnswer when none comes in time."""
        with self.explained():
            requests = self._idle_requests() or Requests(self._context, self.target.contact)
            try:
                answer = requests.ask(body, timeout)
            except BaseException:  # a connection with an error is not used again
                requests.close()
                raise
            self.answered = True
            with self._lock:
                if not self.closed:
                    self._idle.append(requests)
                    return answer
            requests.close()
            return answer

    def listen(self, topics: tuple[str, ...]) -> Events:
        with self.explained(), self._lock:
            if self.closed:
                raise ConnectionError(_CLOSED)
            events = Events(self._context, self.target.contact, topics)
            self._events.add(events)
            return events

    def refresh_target(self) -> None:
        """Read the contact file again: a resumed manager has another address and other keys."""
        self.target = self.target.refreshed()
        self._drop_idle()

    def close(self) -> None:
        """Close all connections. Calls of other threads end with ConnectionError, and close their own connections."""
        with self._lock:
            self.closed = True
            listening = list(self._events)
        self._drop_idle()
        for events in listening:
            events.close()
        self._context.term()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn ZeroMQ errors into ConnectionError."""
        try:
            yield
        except zmq.ZMQError as error:
            reason = _CLOSED if self.closed else f"no connection can be made: {error.strerror}"
            raise ConnectionError(reason) from None

    def _idle_requests(self) -> Requests | None:
        """Take an idle connection that is still up."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                requests = self._idle.pop()
            try:
                requests.connection.check()
                return requests
            except ConnectionError:
                requests.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for requests in idle:
            requests.close()


_everywhere: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()
_left_behind: list[object] = []
"""Objects of the parent of a forked process, kept because garbage collection would close their sockets."""


def _begin_in_child() -> None:
    for connections in list(_everywhere):
        connections.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)
