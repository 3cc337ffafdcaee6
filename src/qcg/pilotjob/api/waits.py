"""Conditions that a client waits for, without I/O: they consume answers and events until they are met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from qcg.pilotjob.api.end_stream import EndStream, ends_request

MOST_TOLD = 5
"""The most names in an error message."""
FINAL = frozenset({"SUCCEED", "FAILED", "CANCELED", "OMITTED"})

WELCOME = "WEL"
"""Topic of the message to every new subscriber, sent about when its subscriptions arrive."""
BEAT = "BEAT"
"""Topic of the heartbeat, with the number of the last event of each topic. Subscribed to last."""


def parse_event(message: bytes) -> tuple[str, dict[str, Any]]:
    """`TOPIC {json}`."""
    topic, _, body = message.partition(b" ")
    return topic.decode(), msgspec.json.decode(body) if body else {}


class EventNumbers:
    """Detects lost events by their numbers: a manager drops events for a client that reads too slowly.

    The first heartbeat counts as a gap: the welcome message may be sent before all subscriptions have arrived, but a
    heartbeat proves that they have."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = frozenset(topics)
        self._last: dict[str, int] = {}
        self._subscribed = False

    def has_gap(self, topic: str, data: dict[str, Any]) -> bool:
        if topic == BEAT:
            last_numbers = {name: number for name, number in data["numbers"].items() if name in self._topics}
            gap = any(self._last.get(name, number) != number for name, number in last_numbers.items())
            self._last.update(last_numbers)
            first, self._subscribed = not self._subscribed, True
            return gap or first
        number = data.get("number")
        if number is None:
            return False
        expected = self._last.get(topic, number - 1) + 1
        self._last[topic] = number
        return bool(number != expected)


class _Wait:
    must_ask = True
    """The next step is to send `question`: events are not sufficient."""

    def ask_again(self) -> None:
        """An answer or an event may be missing."""
        self.must_ask = True


class WaitForJobs(_Wait):
    """Waits until all of these jobs and iterations are final."""

    asks_first = False
    no_more_ends = False
    delayed = False

    def __init__(self, names: Iterable[str], ended: Callable[[tuple[str, str]], None] = lambda end: None) -> None:
        """`ended`: called with the name and state of each job as soon as its end is known."""
        self._ended = ended
        self.states: dict[str, str] = {}
        self._pending = dict.fromkeys(names)
        self._iterated = Counter(name.partition(":")[0] for name in self._pending if ":" in name)
        """Number of pending iterations by job."""
        self.topics = ("JFI", "IFI") if self._iterated else ("JFI",)
        """Iteration events only where needed: the manager makes them for all jobs while somebody subscribes."""

    @property
    def over(self) -> bool:
        return not self._pending

    def left(self) -> str:
        """The pending jobs, as a clause of an error message."""
        number = len(self._pending)
        names = ", ".join(map(repr, list(self._pending)[:MOST_TOLD]))
        more = f" and {number - MOST_TOLD} more" if number > MOST_TOLD else ""
        return (
            f"{number} of {number + len(self.states)} jobs {'has' if number == 1 else 'have'} not ended: {names}{more}"
        )

    def question(self) -> dict[str, Any]:
        self.must_ask = False
        return {"request": "jobStatus", "jobNames": list(self._pending)}

    def answer(self, data: dict[str, Any]) -> str | None:
        """Process the answer to `question`; returns an error message when a job does not exist."""
        for name, entry in data["jobs"].items():
            if entry["status"] != 0:
                return str(entry["message"])
            self._take(name, entry["data"]["status"])
        return None

    def event(self, topic: str, data: dict[str, Any]) -> None:
        job = data["job"]
        if topic == "IFI":
            self._take(f"{job}:{data['it']}", data["state"])
            return
        self._take(job, data["state"])
        # Iterations that end together with their job have no events of their own.
        if self._iterated[job] > 0:
            self.must_ask = True

    def _take(self, name: str, state: str) -> None:
        if name in self._pending and state in FINAL:
            del self._pending[name]
            self.states[name] = state
            self._ended((name, state))
            job, colon, _ = name.partition(":")
            if colon:
                self._iterated[job] -= 1


class WaitForAll(_Wait):
    """Waits until all jobs are final."""

    topics = ("NOJ",)
    asks_first = False
    no_more_ends = False
    delayed = False

    def __init__(self) -> None:
        self.over = False

    def left(self) -> str:
        return "not every job has ended"

    def question(self) -> dict[str, Any]:
        self.must_ask = False
        return {"request": "status", "options": {"allJobsFinished": True}}

    def answer(self, data: dict[str, Any]) -> str | None:
        self.over = bool(data["AllJobsFinished"])
        return None

    def event(self, topic: str, data: dict[str, Any]) -> None:
        self.over = True


class WaitForAny(_Wait):
    """Waits until the stream of job ends has an end to return. Events only trigger the next request."""

    topics = ("JFI",)
    asks_first = True
    """Request ends before subscribing: ends before the call need no subscription."""

    def __init__(self, ends: EndStream) -> None:
        self._ends = ends
        self._asked = ends.position
        self.no_more_ends = False
        """All ends were returned, and no unfinished job is left."""
        self.delayed = False
        """Request again soon: the manager cannot write ends to its registry at the moment, or the reply is outdated."""

    def left(self) -> str:
        return "no job has ended"

    @property
    def over(self) -> bool:
        return self._ends.is_ready

    def question(self) -> dict[str, Any]:
        self.must_ask = False
        self._asked = self._ends.position
        return ends_request(self._asked)

    def answer(self, data: dict[str, Any]) -> str | None:
        is_current = self._ends.receive(self._asked, data)
        self.no_more_ends = is_current and not (data["more"] or self.over)
        self.delayed = (data["delayed"] or not is_current) and not self.over
        return None

    def event(self, topic: str, data: dict[str, Any]) -> None:
        self.must_ask = True


Wait = WaitForJobs | WaitForAll | WaitForAny
