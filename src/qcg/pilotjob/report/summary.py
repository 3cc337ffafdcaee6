"""Sums up a registry: counts, durations, the slowest and the failed jobs."""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal import aggregates, queries
from qcg.pilotjob.journal.aggregates import Used
from qcg.pilotjob.journal.records import AttemptRecord, JobRecord
from qcg.pilotjob.journal.schema import place
from qcg.pilotjob.report.run_report import Statistics


class Outcome(NamedTuple):
    """The end of a job or an iteration: its job, and the attempt, None when it was never started."""

    job: JobRecord
    run: AttemptRecord | None


class Summary(Struct):
    at_work: bool
    """The manager of this registry is running."""
    jobs: Counter[State]
    iterations: Counter[State]
    first: float
    last: float
    queue_times: array[float]
    run_times: array[float]
    core_seconds: dict[str, float]
    """Core seconds of attempts by node."""
    used: list[Used]
    """Resource usage of attempts, where it is known."""
    slowest: list[Outcome]
    """The longest first."""
    failed: int
    failures: list[Outcome]
    unlisted: JobRecord | None
    """The job to which all unlisted failures belong; None if there are none, or if they belong to several jobs."""
    repeated: Counter[str]
    """Numbers of repeated attempts by cause."""
    omitted: list[JobRecord]

    @property
    def finished(self) -> bool:
        return not any(self.jobs[state] for state in State if not state.is_final)

    @property
    def span(self) -> float:
        """Seconds from the first submission to the last event."""
        return max(self.last - self.first, 0.0)


class StateCounts(NamedTuple):
    """Numbers by state."""

    jobs: Counter[State]
    iterations: Counter[State]
    units: Counter[State]
    """Iterations, and jobs without iterations."""


def count_states(connection: sqlite3.Connection, *, at_work: bool) -> StateCounts:
    """Count jobs and iterations. `at_work`: the run has a manager."""
    single = aggregates.single_jobs(connection)
    jobs, iterations = Counter(single), Counter[State]()
    for job in aggregates.iterated_jobs(connection):
        idle = not (at_work or job.state.is_final or job.states[State.SCHEDULED] or job.states[State.EXECUTING])
        jobs[State.QUEUED if idle else job.state] += 1
        rest = job.rest or (job.state if job.state.is_final else State.QUEUED)
        iterations += job.states
        iterations[rest] += max(job.iterations - job.states.total(), 0)
    return StateCounts(jobs, iterations, single + iterations)


def summarise(connection: sqlite3.Connection, most: int, *, at_work: bool = True) -> Summary:
    """Sum up a registry. `most`: how many of the slowest, failed and omitted jobs to list."""
    jobs, iterations, _ = count_states(connection, at_work=at_work)
    first, last = aggregates.first_and_last(connection) or (0.0, 0.0)
    times = aggregates.times(connection)
    any_failed = jobs[State.FAILED] or iterations[State.FAILED]
    failed, failures, unlisted = _failures(connection, most) if any_failed else (0, [], None)
    return Summary(
        at_work=at_work,
        jobs=jobs,
        iterations=iterations,
        first=first,
        last=last,
        queue_times=times.waited,
        run_times=times.ran,
        core_seconds=aggregates.core_seconds(connection, last),
        used=list(aggregates.used(connection)),
        slowest=[_outcome(connection, run.seq, run) for run in aggregates.slowest(connection, most)],
        failed=failed,
        failures=failures,
        unlisted=unlisted,
        repeated=aggregates.repeated_attempts(connection),
        omitted=aggregates.jobs_in(connection, State.OMITTED, most) if jobs[State.OMITTED] else [],
    )


def _failures(connection: sqlite3.Connection, most: int) -> tuple[int, list[Outcome], JobRecord | None]:
    """The number of failures (failed attempts, and jobs that failed without an attempt), the first failures by
    submission, and the job to which all others belong."""
    runs = aggregates.failed_attempts(connection, most)
    jobs = aggregates.jobs_failed_without_attempt(connection)
    found = [(run.seq, run.position, run) for run in runs] + [(seq, -1, None) for seq in jobs[:most]]
    first = sorted(found, key=lambda one: one[:2])[:most]
    failures = [_outcome(connection, seq, run) for seq, _, run in first]
    number = aggregates.count_failed_attempts(connection) + len(jobs)
    unlisted = _unlisted(connection, first[-1][:2], jobs) if first and number > len(first) else None
    return number, failures, unlisted


def _unlisted(connection: sqlite3.Connection, last: tuple[int, int], without_attempt: list[int]) -> JobRecord | None:
    """The job to which all failures after the last listed one belong."""
    seqs = aggregates.failed_jobs_after(connection, place(*last))
    if len(seqs) != 1 or any((seq, -1) > last for seq in without_attempt):
        return None
    job = queries.job_record(connection, seqs.pop())
    return job if job is not None and job.iterations else None


def _outcome(connection: sqlite3.Connection, seq: int, run: AttemptRecord | None) -> Outcome:
    job = queries.job_record(connection, seq)
    assert job is not None
    return Outcome(job, run)


def statistics_of(durations: Iterable[float]) -> Statistics | None:
    """Statistics of durations, None without durations."""
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
