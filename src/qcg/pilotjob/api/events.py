"""What a service publishes, as it arrives at one client."""

from __future__ import annotations

from typing import Any

import zmq

from qcg.pilotjob.api.link import Line
from qcg.pilotjob.api.waiting import BEAT, WELCOME, Numbers, parse_event
from qcg.pilotjob.wire.contact import ClientsContact

MANY = 1000


class Events:
    """For one thread. Nothing is missed from the moment that `complete` is true; before it, anything may be."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], found: ClientsContact, topics: tuple[str, ...]) -> None:
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
        return self._line.wait(seconds)

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """What has arrived: topics and what they tell."""
        events: list[tuple[str, dict[str, Any]]] = []
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
        self._line.close()
