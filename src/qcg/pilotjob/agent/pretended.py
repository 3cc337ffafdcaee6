"""A host that starts nothing: jobs end at once, or, when they are `sleep SECONDS`, after that time.

What is left is what everything around the processes costs: manager, scheduler, journal, report and messages, with as
many pretended nodes as one likes. It answers as `JobHost` does, and keeps the same ledger.
"""

from __future__ import annotations

import heapq
import os
import time
from collections import deque

from qcg.pilotjob.host.ledger import Ledger, Opened, Record
from qcg.pilotjob.host.records import Ended, Launch, Running
from qcg.pilotjob.host.tree import MARKER

LOST = "The agent that pretended to run this job was killed."


class PretendedHost:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queue: deque[Launch] = deque()
        self._sleeping: dict[str, Opened] = {}
        self._ends: list[tuple[float, str]] = []
        """A heap: when those that sleep are over, in monotonic seconds."""
        for id, opened in list(ledger.open.items()):
            self._over(id, opened, "lost", LOST)

    # Orders

    def start(self, launches: list[Launch]) -> list[str]:
        waiting = {launch.id for launch in self._queue}
        known = {launch.id for launch in launches if launch.id in waiting or self._ledger.knows(launch.id)}
        self._queue.extend(launch for launch in launches if launch.id not in known)
        return sorted(known)

    def kill(self, ids: list[str]) -> None:
        unwanted = set(ids)
        for id in unwanted & self._sleeping.keys():
            self._over(id, self._sleeping.pop(id), "cancel")
        for launch in [launch for launch in self._queue if launch.id in unwanted]:
            self._queue.remove(launch)
            self._never_started(launch, "cancel", "")

    def finish(self, grace: float, reason: str = "cancel", message: str = "") -> None:
        while self._queue:
            self._never_started(self._queue.popleft(), reason, message)
        while self._sleeping:
            self._over(*self._sleeping.popitem(), reason, message)

    # The driver's turns

    def advance(self, limit: int = 16) -> bool:
        """Never more than there is: what costs nothing needs no pauses."""
        while self._queue:
            launch = self._queue[0]
            marker = launch.env.get(MARKER, "")
            if not self._ledger.starting(launch.id, marker):
                return False
            self._queue.popleft()
            opened = Opened(marker, os.getpid(), time.time(), launch.grant, 0, 0)
            self._ledger.started(launch.id, opened)
            seconds = _seconds_of(launch.argv)
            if seconds:
                self._sleeping[launch.id] = opened
                heapq.heappush(self._ends, (time.monotonic() + seconds, launch.id))
            else:
                self._over(launch.id, opened, "exit")
        return False

    def reap(self) -> None:
        """There are no processes."""

    def due(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            id = heapq.heappop(self._ends)[1]
            if id in self._sleeping:
                self._over(id, self._sleeping.pop(id), "exit")

    def next_deadline(self) -> float | None:
        return self._ends[0][0] if self._ends else None

    # Answers

    @property
    def busy(self) -> bool:
        return bool(self._queue or self._sleeping)

    @property
    def trouble(self) -> str:
        return self._ledger.trouble

    def take_records(self) -> list[tuple[int, Record]]:
        self._ledger.flush()
        return self._ledger.untold()

    def report(self) -> tuple[list[tuple[int, Record]], list[Running]]:
        self._ledger.flush()
        live = [Running(id, opened.pid, opened.at, opened.grant) for id, opened in self._sleeping.items()]
        live += [Running(launch.id, 0, 0.0, launch.grant) for launch in self._queue]
        return self._ledger.unacknowledged(), live + self._ledger.closing()

    def close(self) -> None:
        """There is nothing to give back."""

    def _over(self, id: str, opened: Opened, reason: str, message: str = "") -> None:
        exit_code = 0 if reason == "exit" else -1
        self._ledger.ended(Ended(id, time.time(), exit_code, reason, message, opened.pid, opened.at))

    def _never_started(self, launch: Launch, reason: str, message: str) -> None:
        self._ledger.ended(Ended(launch.id, time.time(), -1, reason, message, 0, 0.0))


def _seconds_of(argv: list[str]) -> float:
    if len(argv) == 2 and argv[0] == "sleep":
        try:
            return float(argv[1])
        except ValueError:
            return 0.0
    return 0.0
