"""The history and the failures of a run from its registry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from qcg.pilotjob.journal import run_history
from qcg.pilotjob.journal.run_history import Course, Edges, Failures
from qcg.pilotjob.report.failure_groups import FailureGroups
from qcg.pilotjob.report.history import SHORTEST, HistoryBins
from qcg.pilotjob.report.run_summary import MOST_BINS


class RecordedHistory:
    """Reads the history up to a time, in steps: `for _ in recorded.steps(): ...` until nothing is left to read."""

    def __init__(self, connection: sqlite3.Connection, until: float, cores: int) -> None:
        """`cores`: the number of cores of the run. The cores of earlier managers are not recorded."""
        self._connection = connection
        self._cores = cores
        self.bins: HistoryBins | None = None
        """The history, after the last step; None without jobs."""
        self.failures = FailureGroups()
        self._until = until

    def steps(self) -> Iterator[None]:
        connection = self._connection
        first = run_history.first_submission(connection)
        if first is None:
            return
        self._until = max(self._until, first)
        width = SHORTEST
        while (self._until - first) / width >= MOST_BINS:
            width *= 2
        bins = HistoryBins(first, width)
        course = Course(connection, first, width, self._until)
        flow = _Flow(int((self._until - first) / width) + 1)

        def add_course(part: tuple[int, int], *, past: bool) -> None:
            for edges in course.starts(part, past=past):
                bins.count(first + edges.bin * width, starts=edges.number)
                flow.begin(edges)
            for edges in course.ends(part, past=past):
                bins.count(first + edges.bin * width, ends=edges.number)
                flow.end(edges)
            for number, failed in course.failures(part, past=past):
                bins.count(first + number * width, failures=failed)

        for part in run_history.parts(connection):
            add_course(part, past=False)
            _add(self.failures, run_history.failures_in(connection, part))
            yield
        for part in run_history.parts_of_jobs(connection):
            _add(self.failures, run_history.failures_without_attempt(connection, part))
            yield
        for part in run_history.parts_of_past(connection):
            add_course(part, past=True)
            yield
        for number, busy in enumerate(flow.core_seconds(width, self._until - first)):
            span = min(width, self._until - first - number * width)
            bins.add_bin(number, busy, max(self._cores * span, busy))
        self.bins = bins


class FailureSteps:
    """Reads the failures alone, in steps."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.failures = FailureGroups()

    def steps(self) -> Iterator[None]:
        for part in run_history.parts(self._connection):
            _add(self.failures, run_history.failures_in(self._connection, part))
            yield
        for part in run_history.parts_of_jobs(self._connection):
            _add(self.failures, run_history.failures_without_attempt(self._connection, part))
            yield


def _add(groups: FailureGroups, failures: Iterable[Failures]) -> None:
    for failure in failures:
        groups.add(failure.message, failure.first, failure.number)


class _Flow:
    """Core-seconds in use in each bin. The start of an attempt adds its cores from that time on; its end subtracts
    them."""

    def __init__(self, bins: int) -> None:
        self._in_bin = [0.0] * bins
        self._change = [0.0] * bins

    def begin(self, edges: Edges) -> None:
        number = min(edges.bin, len(self._in_bin) - 1)
        self._in_bin[number] += edges.core_seconds
        self._change[number] += edges.cores

    def end(self, edges: Edges) -> None:
        number = min(edges.bin, len(self._in_bin) - 1)
        self._in_bin[number] -= edges.core_seconds
        self._change[number] -= edges.cores

    def core_seconds(self, width: float, until: float) -> Iterator[float]:
        """By bin; the last bin ends at `until` seconds, where attempts without an end still run."""
        cores = 0.0
        for number, (in_bin, change) in enumerate(zip(self._in_bin, self._change, strict=True)):
            before = cores
            cores += change
            beyond = max((number + 1) * width - until, 0.0)
            yield max(in_bin + before * width - cores * beyond, 0.0)
