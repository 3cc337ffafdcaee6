"""Events that a manager publishes, as a client receives them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from qcg.pilotjob.api.connection import Connection
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.api.waits import BEAT, WELCOME, EventNumbers, parse_event
from qcg.pilotjob.wire.contact import ClientsContact
from qcg.pilotjob.wire.sockets import receive_all

MANY = 1000


class Events:
    """A subscription to events, for one thread, best in a `with` block. Once `complete` is true, no event is missed."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], found: ClientsContact, topics: tuple[str, ...]) -> None:
        self._using = threading.Lock()
        self._closing = False
        self._connection = Connection(context, zmq.SUB, found, found.publisher)
        self._numbers = EventNumbers(topics)
        self.complete = False
        self._missed = False
        for topic in (*topics, BEAT, WELCOME):
            self._connection.socket.setsockopt_string(zmq.SUBSCRIBE, topic)

    def wait(self, seconds: float) -> bool:
        """Wait for events; returns False after so many seconds. Raises ConnectionError when the manager is gone. A live
        manager sends something every few seconds."""
        with self._in_use():
            return self._connection.wait(seconds)

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the received events as pairs of topic and data."""
        events: list[tuple[str, dict[str, Any]]] = []
        with self._in_use():
            for [message] in receive_all(self._connection.socket):
                topic, data = parse_event(message)
                if topic == WELCOME:
                    self.complete = True
                    continue
                self._missed |= self._numbers.has_gap(topic, data)
                if topic != BEAT:
                    events.append((topic, data))
                    if len(events) == MANY:
                        break
        return events

    def take_missed(self) -> bool:
        """Whether the manager dropped events since the last call, because the client read too slowly: query the
        states."""
        missed, self._missed = self._missed, False
        return missed

    def close(self) -> None:
        """Close the subscription, from any thread. A waiting thread closes it itself when it wakes up."""
        self._closing = True
        if self._using.acquire(blocking=False):
            self._connection.close()
            self._using.release()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        try:
            with self._using:
                if self._closing:
                    raise ConnectionError("nothing is listened to any more: the events or their manager were closed")
                yield
        except zmq.ContextTerminated:
            self._closing = True
            raise ConnectionError("the manager object of these events was cleaned up") from None
        finally:
            # Another thread may have tried to close it meanwhile.
            if self._closing:
                self.close()
