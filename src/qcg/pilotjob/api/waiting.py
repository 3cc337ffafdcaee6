"""What a client waits for, apart from how it waits: fed with answers and events, it knows when it is over."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

FINAL = frozenset({"SUCCEED", "FAILED", "CANCELED", "OMITTED"})

WELCOME = b"WEL"
"""Sent to every new subscriber: from then on it misses nothing."""


def parse_event(message: bytes) -> tuple[str, dict[str, Any]]:
    """`TOPIC {json}`."""
    topic, _, body = message.partition(b" ")
    return topic.decode(), json.loads(body) if body else {}


class WaitForJobs:
    """Until all of these jobs and iterations are final."""

    topics = ("JFI", "IFI")

    def __init__(self, names: Iterable[str]) -> None:
        self.states: dict[str, str] = {}
        self._pending = dict.fromkeys(names)
        self.ask_again = True
        """Something has happened that only an answer to `question` can tell."""

    @property
    def over(self) -> bool:
        return not self._pending

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
        if topic == "JFI":
            self._take(job, data["state"])
            # Iterations that end together with their job have no events of their own.
            if not self.ask_again and any(name.startswith(job + ":") for name in self._pending):
                self.ask_again = True
        else:
            self._take(f"{job}:{data['it']}", data["state"])

    def _take(self, name: str, state: str) -> None:
        if name in self._pending and state in FINAL:
            del self._pending[name]
            self.states[name] = state


class WaitForAll:
    """Until no job is left that is not final."""

    topics = ("NOJ",)

    def __init__(self) -> None:
        self.over = False
        self.ask_again = True

    def question(self) -> dict[str, Any]:
        self.ask_again = False
        return {"request": "status", "options": {"allJobsFinished": True}}

    def answer(self, data: dict[str, Any]) -> str | None:
        self.over = bool(data["AllJobsFinished"])
        return None

    def event(self, topic: str, data: dict[str, Any]) -> None:
        self.over = True


class WaitForAny:
    """Until the next job ends."""

    topics = ("JFI",)

    def __init__(self) -> None:
        self.ended: tuple[str, str] | None = None
        self.ask_again = False

    @property
    def over(self) -> bool:
        return self.ended is not None

    def question(self) -> dict[str, Any]:
        self.ask_again = False
        return {"request": "status", "options": {"allJobsFinished": True}}

    def answer(self, data: dict[str, Any]) -> str | None:
        return None

    def event(self, topic: str, data: dict[str, Any]) -> None:
        self.ended = self.ended or (data["job"], data["state"])


Wait = WaitForJobs | WaitForAll | WaitForAny
