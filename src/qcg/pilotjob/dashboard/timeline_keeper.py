"""Caches the timeline of a run: built in the background, once for each version of the registry."""

from __future__ import annotations

import sqlite3
import threading
import time

from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.report.timeline import Timeline
from qcg.pilotjob.watch.open import FollowedRun

PART_OF_TIME = 0.05
"""The largest share of time spent on building timelines of a changing run."""
SHORTEST_AGE = 1.0
"""Seconds for which a timeline is shown before the next one is built."""


class TimelineKeeper:
    """Returns the latest timeline at once, and builds a newer one after a request."""

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._changed = threading.Condition()
        self._latest: Timeline | None = None
        self._version = -1
        self._problem = ""
        self._is_building = False
        self._next_build = 0.0

    def latest(self) -> Timeline:
        """The latest timeline; waits for the first one. Raises JournalError when the registry cannot be read."""
        with self._changed:
            self._build_if_due()
            self._changed.wait_for(lambda: self._latest is not None or not self._is_building)
            if self._latest is None:
                raise JournalError(self._problem)
            return self._latest

    def prepare(self) -> None:
        """Build the first timeline before the first request."""
        with self._changed:
            if self._latest is None:
                self._build_if_due()

    def _build_if_due(self) -> None:
        """Start a build; the caller holds the lock."""
        if not self._is_building and time.monotonic() >= self._next_build:
            self._is_building = True
            threading.Thread(target=self._build, name="timeline", daemon=True).start()

    def _build(self) -> None:
        began = time.monotonic()
        problem = "The timeline could not be made; see the output of the dashboard."
        try:
            self._run.read_versioned(self._read)
            problem = ""
        except JournalError as error:
            problem = str(error)
        finally:
            with self._changed:
                took = time.monotonic() - began
                self._problem = problem
                self._is_building = False
                self._next_build = time.monotonic() + max(SHORTEST_AGE, took * (1 / PART_OF_TIME - 1))
                self._changed.notify_all()

    def _read(self, connection: sqlite3.Connection, version: int) -> None:
        alive = self._run.is_alive
        if self._latest is not None and version == self._version and not alive:
            return
        timeline = Timeline.read(connection, time.time() if alive else None)
        with self._changed:
            self._latest, self._version = timeline, version
