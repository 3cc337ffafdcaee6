"""The connections of a client to its service, for all threads of a process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.api.events import Events
from qcg.pilotjob.api.link import Requests, make_context
from qcg.pilotjob.api.target import Target

_CLOSED = "this manager object was cleaned up and cannot be used any more"


class Connections:
    """Each request has a line of its own. A process that was forked makes new ones: those of its parent are of no use
    to it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.closed = False
        self._begin()
        _everywhere.add(self)

    def _begin(self) -> None:
        self._context = make_context()
        self._idle: list[Requests] = []
        self._events: weakref.WeakSet[Events] = weakref.WeakSet()
        self._lock = threading.Lock()

    def begin_in_child(self) -> None:
        """After a fork: nothing of the parent's is closed, for both processes have the same sockets."""
        _left_behind.append((self._context, self._idle, list(self._events)))
        self._begin()

    def ask(self, body: bytes, timeout: float) -> dict[str, Any]:
        """The answer to a request; `NoAnswer` when none comes in time."""
        with self.explained():
            requests = self._idle_requests() or Requests(self._context, self.target.contact)
            try:
                answer = requests.ask(body, timeout)
            except BaseException:  # a line on which something went wrong is not used again
                requests.close()
                raise
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

    def look_again(self) -> None:
        """The service may be elsewhere now, and have other keys."""
        self.target = self.target.again()
        self._drop_idle()

    def close(self) -> None:
        """Calls under way in other threads end with a `ConnectionError`, and close what they have open."""
        with self._lock:
            self.closed = True
            listening = list(self._events)
        self._drop_idle()
        for events in listening:
            events.close()
        self._context.term()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """What ZeroMQ says, in our words."""
        try:
            yield
        except zmq.ZMQError as error:
            reason = _CLOSED if self.closed else f"no connection can be made: {error.strerror}"
            raise ConnectionError(reason) from None

    def _idle_requests(self) -> Requests | None:
        """One that is still connected."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                requests = self._idle.pop()
            try:
                requests.line.check()
                return requests
            except ConnectionError:
                requests.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for requests in idle:
            requests.close()


_everywhere: weakref.WeakSet[Connections] = weakref.WeakSet()
_left_behind: list[object] = []
"""In a process that was forked: what is its parent's. Kept, because what is dropped is closed."""


def _begin_in_child() -> None:
    for connections in list(_everywhere):
        connections.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)
