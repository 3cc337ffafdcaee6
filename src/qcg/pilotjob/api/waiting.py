"""What a client waits for, apart from how it waits: fed with answers and events, it knows when it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from qcg.pilotjob.api.ends import EndStream, question

MOST_TOLD = 5
"""Of names in a sentence."""
FINAL = frozenset({"SUCCEED", "FAILED", "CANCELED", "OMITTED"})

WELCOME = "WEL"
"""Sent to every new subscriber: its subscriptions arrive at the same time, or an instant later."""
BEAT = "BEAT"
"""Sent every few seconds, with the number of the last event of each topic. Subscribed to after those."""


def parse_event(message: bytes) -> tuple[str, dict[str, Any]]:
    """`TOPIC {json}`."""
    topic, _, body = message.partition(b" ")
    return topic.decode(), msgspec.json.decode(body) if body else {}


class Numbers:
    """Notices when events were lost: a service keeps only so many for a client that is slow to read them.

    And the first beat counts as a gap. A subscriber is welcomed once it is connected, which can be an instant before
    its subscriptions have arrived; whoever has heard a beat is known to have subscribed."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = frozenset(topics)
        self._last: dict[str, int] = {}
        self._subscribed = False

    def is_gap(self, topic: str, data: dict[str, Any]) -> bool:
        if topic == BEAT:
            told = {name: number for name, number in data["numbers"].items() if name in self._topics}
            gap = any(self._last.get(name, number) != number for name, number in told.items())
            self._last.update(told)
            first, self._subscribed = not self._subscribed, True
            return gap or first
        number = data.get("number")
        if number is None:
            return False
        expected = self._last.get(topic, number - 1) + 1
        self._last[topic] = number
        return bool(number != expected)


class WaitForJobs:
    """Until all of these jobs and iterations are final."""

    asks_first = False
    hopeless = False
    delayed = False

    def __init__(self, names: Iterable[str], ended: Callable[[tuple[str, str]], None] = lambda end: None) -> None:
        """`ended` is called with the name and state of each as soon as its end is known."""
        self._ended = ended
        self.states: dict[str, str] = {}
        self._pending = dict.fromkeys(names)
        self._iterated = Counter(name.partition(":")[0] for name in self._pending if ":" in name)
        """The jobs whose iterations are waited for, and how many of each."""
        self.topics = ("JFI", "IFI") if self._iterated else ("JFI",)
        """A service puts together an event for each iteration of every job as long as anybody wants them."""
        self.ask_again = True
        """Something has happened that only an answer to `question` can tell."""

    @property
    def over(self) -> bool:
        return not self._pending

    def left(self) -> str:
        """What has not happened yet, as a sentence."""
        number = len(self._pending)
        names = ", ".join(map(repr, list(self._pending)[:MOST_TOLD]))
        more = f" and {number - MOST_TOLD} more" if number > MOST_TOLD else ""
        return (
            f"{number} of {number + len(self.states)} jobs {'has' if number == 1 else 'have'} not ended: {names}{more}"
        )

    def question(self) -> dict[str, Any]:
        self.ask_again = False
        return {"request": "jobStatus", "jobNames": list(self._pending)}

    def answer(self, data: dict[str, Any]) -> str | None:
        """Take in the states; a sentence when a job is not there."""
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
            self.ask_again = True

    def _take(self, name: str, state: str) -> None:
        if name in self._pending and state in FINAL:
            del self._pending[name]
            self.states[name] = state
            self._ended((name, state))
            job, colon, _ = name.partition(":")
            if colon:
                self._iterated[job] -= 1


class WaitForAll:
    """Until no job is left that is not final."""

    topics = ("NOJ",)
    asks_first = False
    hopeless = False
    delayed = False

    def __init__(self) -> None:
        self.over = False
        self.ask_again = True

    def left(self) -> str:
        return "not every job has ended"

    def question(self) -> dict[str, Any]:
        self.ask_again = False
        return {"request": "status", "options": {"allJobsFinished": True}}

    def answer(self, data: dict[str, Any]) -> str | None:
        self.over = bool(data["AllJobsFinished"])
        return None

    def event(self, topic: str, data: dict[str, Any]) -> None:
        self.over = True


class WaitForAny:
    """Until the stream of job ends has one to return. An event only says that it is time to ask for more."""

    topics = ("JFI",)
    asks_first = True
    """An end that happened before the call needs no subscription."""

    def __init__(self, ends: EndStream) -> None:
        self._ends = ends
        self._asked = ends.position
        self.ask_again = True
        self.hopeless = False
        """No job is left that could end, and all ends were returned."""
        self.delayed = False
        """Ask again soon: the manager cannot write ends to its registry at the moment, or the reply is outdated."""

    def left(self) -> str:
        return "no job has ended"

    @property
    def over(self) -> bool:
        return self._ends.is_ready

    def question(self) -> dict[str, Any]:
        self.ask_again = False
        self._asked = self._ends.position
        return question(self._asked)

    def answer(self, data: dict[str, Any]) -> str | None:
        is_current = self._ends.receive(self._asked, data)
        self.hopeless = is_current and not (data["more"] or self.over)
        self.delayed = (data["delayed"] or not is_current) and not self.over
        return None

    def event(self, topic: str, data: dict[str, Any]) -> None:
        self.ask_again = True


Wait = WaitForJobs | WaitForAll | WaitForAny
