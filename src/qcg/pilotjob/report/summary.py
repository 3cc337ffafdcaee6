"""Adds up the rows of a registry. Pure: rows in, numbers out, whatever the rows are."""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from qcg.pilotjob.core.states import State
from qcg.pilotjob.journal.records import JobRecord, RunRecord
from qcg.pilotjob.report.run_report import Statistics


class Ending(NamedTuple):
    """A job that ended (without a run, or with its one run), or one of its iterations."""

    job: JobRecord
    run: RunRecord | None


class Summary:
    """What remains of the rows: counts, durations, and a few that stand out."""

    def __init__(self, most: int, *, at_work: bool) -> None:
        self.most = most
        """How many of the slowest and of the failed ones are kept."""
        self.at_work = at_work
        """The manager of these rows is."""
        self.jobs: Counter[State] = Counter()
        self.iterations: Counter[State] = Counter()
        self.first = math.inf
        self.last = -math.inf
        self.queue_times = array("d")
        self.run_times = array("d")
        self.busy_core_seconds = 0.0
        self.failed = 0
        self.failures: list[Ending] = []
        self.omitted: list[Ending] = []
        self._under_way: list[tuple[int, float]] = []
        self._slowest: list[tuple[float, int, Ending]] = []

    @property
    def finished(self) -> bool:
        return not any(self.jobs[state] for state in State if not state.is_final)

    @property
    def span(self) -> float:
        """Seconds from the first submission to the last thing that happened."""
        return max(self.last - self.first, 0.0) if self.jobs.total() else 0.0

    def slowest(self) -> list[tuple[float, Ending]]:
        """The longest first."""
        return [(seconds, ending) for seconds, _, ending in sorted(self._slowest, reverse=True)]

    def add(self, job: JobRecord, runs: Iterator[RunRecord]) -> None:
        if job.submitted < self.first:
            self.first = job.submitted
        latest = job.ended or job.rest_at or job.submitted
        if latest > self.last:
            self.last = latest
        if job.iterations:
            failed = self._add_iterations(job, runs)
        else:
            failed = self._add_plain(job, next(runs, None))
        if job.state is State.SUCCEED:
            return
        if job.state is State.FAILED and not failed:
            self._add_failure(Ending(job, None))
        elif job.state is State.OMITTED and len(self.omitted) < self.most:
            self.omitted.append(Ending(job, None))

    def _add_plain(self, job: JobRecord, run: RunRecord | None) -> bool:
        """Whether its run has failed."""
        if run is None:
            self.jobs[job.state] += 1
            return False
        self.jobs[run.state] += 1
        self._add_run(job, run)
        return run.state is State.FAILED

    def _add_iterations(self, job: JobRecord, runs: Iterator[RunRecord]) -> bool:
        """Whether one of them has failed."""
        states: Counter[State] = Counter()
        for run in runs:
            states[run.state] += 1
            self._add_run(job, run)
        idle = not (self.at_work or job.state.is_final or states[State.SCHEDULED] or states[State.EXECUTING])
        self.jobs[State.QUEUED if idle else job.state] += 1
        rest = job.rest or (job.state if job.state.is_final else State.QUEUED)
        states[rest] += max(job.iterations - states.total(), 0)
        self.iterations += states
        return states[State.FAILED] > 0

    def _add_run(self, job: JobRecord, run: RunRecord) -> None:
        started, ended = run.started, run.ended
        latest = ended or started or run.scheduled or 0.0
        if latest > self.last:
            self.last = latest
        if run.state is State.FAILED:
            self._add_failure(Ending(job, run))
        if started is None:
            return
        self.queue_times.append(max(started - job.submitted, 0.0))
        cores = 0 if run.grant is None else run.grant.ncores
        if ended is None:
            self._under_way.append((cores, started))
            return
        seconds = max(ended - started, 0.0)
        self.run_times.append(seconds)
        self.busy_core_seconds += cores * seconds
        if len(self._slowest) < self.most:
            heapq.heappush(self._slowest, self._slow(seconds, job, run))
        elif self._slowest and seconds > self._slowest[0][0]:
            heapq.heapreplace(self._slowest, self._slow(seconds, job, run))

    def _slow(self, seconds: float, job: JobRecord, run: RunRecord) -> tuple[float, int, Ending]:
        # Among equal durations the count decides, for the earlier run.
        return seconds, -len(self.run_times), Ending(job, run)

    def _add_failure(self, ending: Ending) -> None:
        self.failed += 1
        if len(self.failures) < self.most:
            self.failures.append(ending)

    def close(self) -> None:
        """What is under way has been busy until the last thing that happened."""
        for cores, started in self._under_way:
            self.busy_core_seconds += cores * (self.last - started)
        self._under_way = []


def summarise(jobs: Iterable[JobRecord], runs: Iterable[RunRecord], most: int, *, at_work: bool = True) -> Summary:
    """Both in the order of their sequence numbers."""
    summary = Summary(most, at_work=at_work)
    groups = groupby(runs, key=attrgetter("seq"))
    seq, group = next(groups, (None, iter(())))
    for job in jobs:
        if seq == job.seq:
            summary.add(job, group)
            seq, group = next(groups, (None, iter(())))
        else:
            summary.add(job, iter(()))
    summary.close()
    return summary


def statistics_of(durations: Iterable[float]) -> Statistics | None:
    """None when there are none."""
    ordered = sorted(durations)
    if not ordered:
        return None
    count = len(ordered)
    middle = count // 2
    return Statistics(
        count=count,
        least=ordered[0],
        median=ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2,
        mean=math.fsum(ordered) / count,
        percentile95=ordered[math.ceil(0.95 * count) - 1],
        most=ordered[-1],
    )
