"""Numbers of waiting jobs and iterations by what they wait for, from the counters of queue lines.

The cost depends on the number of distinct requests, not of jobs: nothing is looked up for a job without iterations, and
at most `MOST_COUNTED` jobs with iterations are examined in a line."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.job_states import QUEUED
from qcg.pilotjob.core.queue import QueueEntry, QueueLine
from qcg.pilotjob.core.records import Job

MOST_COUNTED = 2000
"""Jobs with iterations in a line whose iterations are counted. If there are more, the others count as their average."""
MOST_CHECKED = 10_000
"""Entries of a line up to which those with nothing left to start are removed first. Otherwise their number may be
overestimated a little."""
MOST_SEARCHED = 2000
"""Jobs that are searched for one that waits for others."""


class WaitingCounts(NamedTuple):
    """Numbers of QUEUED iterations, and of QUEUED jobs without iterations."""

    in_lines: list[tuple[QueueLine, int]]
    """The queue lines with the number of ready entries in each, the largest number first."""
    held: int
    paused: int
    """They pause before a retry."""
    dependent: int
    """They wait for other jobs."""


def count_waiting(core: CoreState) -> WaitingCounts:
    in_lines = [(line, number) for line in core.queue.lines.values() if (number := _ready_in(line))]
    in_lines.sort(key=_number_in, reverse=True)
    held, paused = _held(core), len(core.paused)
    queued = core.unit_counts[QUEUED]
    dependent = queued - sum([number for _, number in in_lines]) - held - paused
    return WaitingCounts(in_lines, held, paused, max(dependent, 0))


def held_example(core: CoreState) -> str:
    """The name of a job or iteration that is held and waits; there must be one."""
    for seq, job in core.holds.by_number.items():
        if seq in core.holds.jobs:
            return job.name
        for position in core.holds.positions[seq]:
            if core.state_of(job, position) is QUEUED:
                return name_of(job, position)
    raise LookupError("nothing is held")


def paused_example(core: CoreState) -> tuple[Job, int]:
    """A job or iteration that pauses before a retry; there must be one."""
    (_, position), (_, job) = next(iter(core.paused.items()))
    return job, position


def dependent_example(core: CoreState) -> tuple[Job, int] | None:
    """A job or iteration that waits for other jobs, if one of the last jobs does."""
    for job in islice(reversed(core.jobs.values()), MOST_SEARCHED):
        if job.unmet is None or job.state.is_final or core.holds.since(job, -1):
            continue
        if job.iterations is None:
            if job.unmet.on_jobs and job.state is QUEUED:
                return job, -1
            continue
        if job.unmet.on_jobs:
            positions: range | list[int] = range(len(job.iterations))
        else:
            positions = [position for position, missing in enumerate(job.unmet.same_index or ()) if missing]
        found = next((position for position in positions if job.iterations.states[position] == QUEUED), None)
        if found is not None:
            return job, found
    return None


def _number_in(found: tuple[QueueLine, int]) -> int:
    return found[1]


def _ready_in(line: QueueLine) -> int:
    """The number of jobs and iterations in a line that can be started when resources are free."""
    if line.gone and len(line.entries) <= MOST_CHECKED:
        line.remove_final()
    iterated = len(line.iterated)
    single = max(len(line.entries) - iterated - line.gone, 0)
    if not iterated:
        return single
    counted = [_ready_of(entry) for entry in islice(line.iterated, MOST_COUNTED)]
    return single + round(sum(counted) * iterated / len(counted))


def _ready_of(entry: QueueEntry) -> int:
    """The number of iterations of an entry that can be started."""
    job = entry.job
    iterations = job.iterations
    assert iterations is not None
    queued = iterations.counts[QUEUED]
    ready = len(entry.ready or ())
    if entry.fresh is None or job.state.is_final:
        return min(ready, queued)
    # The iterations of a job with several sizes are spread evenly. Positions with entries of their own are left out.
    apart = sum([iterations.states[position] == QUEUED for position in iterations.apart or ()])
    return min((queued - apart) // len(job.entries) + ready, queued)


def _held(core: CoreState) -> int:
    holds = core.holds
    if not holds:
        return 0
    whole = len(holds.jobs) - sum([seq in holds.jobs for seq in holds.iterated])
    return whole + sum([_held_iterations(core, seq, job) for seq, job in holds.iterated.items()])


def _held_iterations(core: CoreState, seq: int, job: Job) -> int:
    assert job.iterations is not None
    states = job.iterations.states
    of_job = core.holds.positions.get(seq, {})
    if seq not in core.holds.jobs:
        return sum([states[position] == QUEUED for position in of_job])
    released = sum([not since and states[position] == QUEUED for position, since in of_job.items()])
    return job.iterations.counts[QUEUED] - released
