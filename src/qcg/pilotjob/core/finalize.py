"""Final states of jobs and iterations, and their consequences: dependents become ready or are omitted, at any depth."""

from __future__ import annotations

from collections import deque
from itertools import compress

from msgspec import Struct

from qcg.pilotjob.core.bitmaps import Bitmap, both, seen_from
from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.effects import AllDone, IterationsFinal, QueuedIterationsFinal
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import FAILED, OMITTED, QUEUED, SUCCEED, State
from qcg.pilotjob.core.queue import QueueEntry
from qcg.pilotjob.core.records import Attempt, Job

MAX_SINGLE_TRANSITIONS = 1000
"""Number of iterations omitted at the same time up to which each gets a transition of its own."""


class FinalState(Struct, frozen=True, gc=False):
    """The final state that a job (position -1) or an iteration gets."""

    job: Job
    position: int
    state: State
    message: str = ""
    attempt: Attempt | None = None
    exit_code: int | None = None


class UnstartedFinalState(Struct, frozen=True, gc=False):
    """The final state for the part of a job that has not started: the job itself, or its queued iterations.

    Attempts that have started go on.
    """

    job: Job
    state: State
    message: str
    only: Bitmap | None = None
    """The iterations it applies to, if not all that are queued."""


# A work list instead of recursion: dependency chains may be a hundred thousand jobs long.
Work = deque[FinalState | UnstartedFinalState]


def make_final(core: CoreState, *items: FinalState | UnstartedFinalState) -> None:
    """Make jobs and iterations final, then their dependents. All items come first, so none of them is omitted because
    of another one."""
    work: Work = deque(items)
    while work:
        item = work.popleft()
        if isinstance(item, FinalState):
            _make_one_final(core, item, work)
        elif item.job.iterations is not None:
            _make_unstarted_final(core, item, work)
        elif item.job.state is QUEUED:
            _make_one_final(core, FinalState(item.job, -1, item.state, item.message), work)


def make_ready(core: CoreState, job: Job) -> None:
    """Queue a job whose job-wide prerequisites have all succeeded."""
    unmet = job.unmet
    if job.iterations is None:
        (entry,) = job.entries
        entry.fresh = -1
        core.queue.add(entry, core.now)
    elif unmet is not None and unmet.same_index is not None:
        for position, missing in enumerate(unmet.same_index):
            if not missing:
                make_position_ready(core, job, position)
    else:
        for entry in job.entries:
            entry.fresh = 0
            core.queue.add(entry, core.now)


def make_position_ready(core: CoreState, job: Job, position: int) -> None:
    """Queue one iteration (or the job, position -1)."""
    entry = entry_of(job, position)
    entry.make_ready(position)
    core.queue.add(entry, core.now)


def entry_of(job: Job, position: int) -> QueueEntry:
    """The queue entry that starts this position of the job."""
    plan = job.iterations.plan if job.iterations is not None else None
    if plan is None:
        return job.entries[0]
    size = plan.size(position)
    return next(entry for entry in job.entries if entry.size == size)


def _make_one_final(core: CoreState, item: FinalState, work: Work) -> None:
    job, position = item.job, item.position
    if core.state_of(job, position).is_final:
        return
    core.transition(job, position, item.state, item.attempt, item.exit_code, item.message)
    if position < 0:
        _job_is_final(core, job, work)
    else:
        _iteration_is_final(core, job, position, work)


def _job_is_final(core: CoreState, job: Job, work: Work) -> None:
    dependents = job.dependents
    # Free the memory that a final job no longer needs.
    core.queue.job_is_final(job)
    job.entries = ()
    job.unmet = None
    job.dependents = None
    if dependents is not None:
        for other in dependents.on_job:
            _prerequisite_is_final(core, other, job.state, job.name, work)
    if not (core.job_counts[QUEUED] or core.unfinished):
        core.effects.append(AllDone())


def _iteration_is_final(core: CoreState, job: Job, position: int, work: Work) -> None:
    iterations = job.iterations
    assert iterations is not None
    state = iterations.state(position)
    if job.dependents is not None:
        name = name_of(job, position)
        for other in job.dependents.on_position.pop(position, ()):
            _prerequisite_is_final(core, other, state, name, work)
        for other in job.dependents.same_index:
            _same_index_is_final(core, other, iterations.indices[position], state, name, work)
    _finish_iterated(job, work)


def _finish_iterated(job: Job, work: Work) -> None:
    iterations = job.iterations
    if iterations is not None and not iterations.unfinished:
        state = iterations.final_state()
        work.append(FinalState(job, -1, state, "" if state is FAILED and not iterations.all_failed else job.message))


def _prerequisite_is_final(core: CoreState, job: Job, state: State, name: str, work: Work) -> None:
    """Handle the end of a prerequisite of the whole job."""
    if job.state.is_final:
        return
    assert job.unmet is not None
    if state is SUCCEED:
        job.unmet.on_jobs -= 1
        if not job.unmet.on_jobs:
            make_ready(core, job)
        return
    work.append(UnstartedFinalState(job, OMITTED, f"it waits for {name!r}, which is {state.name}"))


def _same_index_is_final(core: CoreState, job: Job, index: int, state: State, name: str, work: Work) -> None:
    """Handle the end of the iteration with this index, which the same index of `job` waits for."""
    assert job.iterations is not None
    position = job.iterations.position(index)
    if position is None or job.state.is_final:
        return
    if state is not SUCCEED:
        if job.iterations.states[position] == QUEUED:
            work.append(FinalState(job, position, OMITTED, f"it waits for {name!r}, which is {state.name}"))
        return
    assert job.unmet is not None
    assert job.unmet.same_index is not None
    job.unmet.same_index[position] -= 1
    if not job.unmet.same_index[position] and not job.unmet.on_jobs:
        make_position_ready(core, job, position)


def _make_unstarted_final(core: CoreState, item: UnstartedFinalState, work: Work) -> None:
    job, iterations = item.job, item.job.iterations
    assert iterations is not None
    if job.state.is_final:
        return
    queued = iterations.queued()
    chosen = queued if item.only is None else both(queued, item.only)
    ended = iterations.make_final(chosen, item.state)
    if ended:
        core.iteration_counts[QUEUED] -= ended
        core.iteration_counts[item.state] += ended
        if chosen == queued and _none_can_be_requeued(iterations):
            job.message = job.message or item.message
            core.effects.append(QueuedIterationsFinal(job, item.state, core.now))
        else:
            core.effects.append(IterationsFinal(job, chosen, item.state, core.now, item.message))
        if job.dependents is not None:
            _unstarted_is_final(core, item, chosen, work)
    _finish_iterated(job, work)


def _none_can_be_requeued(iterations: Iterations) -> bool:
    """Whether no attempt in progress can be queued again.

    The journal would apply the record for all queued iterations to an iteration that is queued again later.
    """
    return all(attempt.killed for attempt in iterations.attempts.values())


def _unstarted_is_final(core: CoreState, item: UnstartedFinalState, ended: Bitmap, work: Work) -> None:
    """Handle the dependents on single iterations that have become final."""
    job, iterations = item.job, item.job.iterations
    assert iterations is not None
    assert job.dependents is not None
    for position in [key for key in job.dependents.on_position if ended[key]]:
        for other in job.dependents.on_position.pop(position):
            _prerequisite_is_final(core, other, item.state, name_of(job, position), work)
    for other in [other for other in job.dependents.same_index if not other.state.is_final]:
        if 0 not in ended:
            work.append(UnstartedFinalState(other, OMITTED, f"it waits for {job.name!r}, which is {item.state.name}"))
        else:
            work += omitted_by_index(other, job, item.state, ended)


def omitted_by_index(
    job: Job, prerequisite: Job, state: State, ended: Bitmap
) -> list[FinalState | UnstartedFinalState]:
    """The omissions in `job` after iterations of a same-index prerequisite ended without success."""
    iterations, others = job.iterations, prerequisite.iterations
    assert iterations is not None
    assert others is not None
    only = both(iterations.queued(), seen_from(ended, others.indices, iterations.indices))
    if only.count(1) > MAX_SINGLE_TRANSITIONS:
        message = f"it waits for the same index of {prerequisite.name!r}, which is {state.name}"
        return [UnstartedFinalState(job, OMITTED, message, only)]
    name = prerequisite.name
    return [
        FinalState(
            job, position, OMITTED, f"it waits for '{name}:{iterations.indices[position]}', which is {state.name}"
        )
        for position in compress(range(len(only)), only)
    ]
