"""A run without a reachable manager, read from its registry."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

from msgspec.structs import replace

from qcg.pilotjob.report.recorded_summary import recorded_summary
from qcg.pilotjob.report.run_summary import RunSummary, has_changed
from qcg.pilotjob.runs.messages import describe_run_without_manager
from qcg.pilotjob.watch.dependency_graph import DependencyGraph
from qcg.pilotjob.watch.first_summary import first_summary, is_large
from qcg.pilotjob.watch.job_details import details_of, find, streams_of
from qcg.pilotjob.watch.job_finder import JobFinder
from qcg.pilotjob.watch.job_lists import list_jobs
from qcg.pilotjob.watch.output_files import read_output
from qcg.pilotjob.watch.registry import RunRegistry
from qcg.pilotjob.watch.source import Action, ActionRefused, JobDetails, JobPage, JobQuery, Output

CHECK_EVERY = 1.0
"""Seconds between two checks whether the registry has changed."""


class RecordedRun:
    """Implements RunSource on a registry."""

    def __init__(
        self, run_dir: Path, registry: RunRegistry, graph: DependencyGraph, *, alive: bool = False, first: bool = False
    ) -> None:
        """`alive`: a manager runs, but has no network interface or does not answer. `first`: the first summary of a
        large run has only counts, so that displays need not wait."""
        self.run_dir = run_dir
        self._registry = registry
        self.alive = alive
        self._graph = graph
        self._finder = JobFinder()
        self._closed = threading.Event()
        self._computing = threading.Lock()
        self._is_first = first
        self._last: tuple[int, RunSummary] | None = None
        """The last summary, and the version of the registry it was computed from."""

    def summary(self) -> RunSummary:
        return self._registry.read_versioned(self._summary)

    def _summary(self, connection: sqlite3.Connection, version: int) -> RunSummary:
        # One thread computes it, and the others wait: it takes a second for a million attempts.
        with self._computing:
            if self._is_first and is_large(connection):
                self._is_first = False
                return replace(first_summary(connection, self.run_dir), alive=self.alive)
            self._is_first = False
            if self._last is None or self._last[0] != version:
                found = recorded_summary(connection, self.run_dir)
                self._last = version, replace(found, alive=self.alive)
            return self._last[1]

    def wait(self, known: RunSummary, timeout: float) -> RunSummary:
        deadline = time.monotonic() + timeout
        while True:
            found = self.summary()
            if has_changed(known, found):
                return found
            left = deadline - time.monotonic()
            if left <= 0 or self._closed.wait(min(left, CHECK_EVERY)):
                return known

    def jobs(self, query: JobQuery) -> JobPage:
        return self._registry.read_versioned(
            lambda connection, version: list_jobs(connection, version, self._finder, query, time.time())
        )

    def job(self, name: str) -> JobDetails | None:
        return self._registry.read(self._job, name)

    def _job(self, connection: sqlite3.Connection, name: str) -> JobDetails | None:
        found = find(connection, name)
        if found is None:
            return None
        details = details_of(connection, self.run_dir, found, alive=self.alive)
        return replace(details, dependencies=tuple(self._graph.of(connection, name)))

    def output(self, name: str, stream: str, offset: int, limit: int = 65536) -> Output | None:
        streams = self._registry.read(self._streams, name)
        return read_output(streams, stream, offset, limit)

    def _streams(self, connection: sqlite3.Connection, name: str) -> dict[str, str]:
        found = find(connection, name)
        return {} if found is None else streams_of(connection, self.run_dir, found)

    def act(self, action: Action, names: list[str]) -> str:
        if self.alive:
            raise ActionRefused("The manager cannot be asked: it does not answer, or it has no network interface.")
        raise ActionRefused(describe_run_without_manager(self.run_dir))

    def close(self) -> None:
        self._closed.set()
