"""What a service publishes, as it arrives at one client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.api.link import Line
from qcg.pilotjob.api.waiting import BEAT, WELCOME, Numbers, parse_event
from qcg.pilotjob.wire.contact import ClientsContact

MANY = 1000


class Events:
    """For one thread, best in a `with` block. Nothing is missed from the moment that `complete` is true; before it,
    anything may be."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], found: ClientsContact, topics: tuple[str, ...]) -> None:
        self._using = threading.Lock()
        self._closing = False
        self._line = Line(context, zmq.SUB, found, found.publisher)
        self._numbers = Numbers(topics)
        self.complete = False
        self.missed = False
        """So many events have come that the service dropped some: only asking helps. Whoever has asked resets it."""
        for topic in (*topics, BEAT, WELCOME):
            self._line.socket.setsockopt_string(zmq.SUBSCRIBE, topic)

    def wait(self, seconds: float) -> bool:
        """Until something has arrived: True; or so many seconds. `ConnectionError` when the service is gone. A service
        that is alive is heard of every few seconds."""
        with self._in_use():
            return self._line.wait(seconds)

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """What has arrived: topics and what they tell."""
        events: list[tuple[str, dict[str, Any]]] = []
        with self._in_use():
            while len(events) < MANY:
                try:
                    topic, data = parse_event(self._line.socket.recv(zmq.NOBLOCK))
                except zmq.Again:
                    break
                if topic == WELCOME:
                    self.complete = True
                    continue
                self.missed |= self._numbers.is_gap(topic, data)
                if topic != BEAT:
                    events.append((topic, data))
        return events

    def close(self) -> None:
        """From any thread. A thread that is just waiting closes it itself, when it is woken up."""
        self._closing = True
        if self._using.acquire(blocking=False):
            self._line.close()
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
            # Whoever wanted to close it in the meantime could not.
            if self._closing:
                self.close()
