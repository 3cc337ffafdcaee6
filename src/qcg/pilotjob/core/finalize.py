"""A job or an iteration becomes final, and what follows: others become ready or are omitted, through any depth."""

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
"""So many iterations that are omitted at the same time are told one by one; more of them together."""


class FinalState(Struct, frozen=True, gc=False):
    """How a job (position -1) or an iteration ended."""

    job: Job
    position: int
    state: State
    message: str = ""
    attempt: Attempt | None = None
    exit_code: int | None = None


class UnstartedFinalState(Struct, frozen=True, gc=False):
    """All of a job that has not started ends: the job itself, or its iterations together. What is under way goes on."""

    job: Job
    state: State
    message: str
    only: Bitmap | None = None
    """Of its iterations, just these."""


# What is still to be settled. A worklist instead of recursion: chains may be a hundred thousand jobs long.
Work = deque[FinalState | UnstartedFinalState]


def make_final(core: CoreState, *endings: FinalState | UnstartedFinalState) -> None:
    """Make these final, and then all consequences: whoever is among them is not omitted because of another one."""
    work: Work = deque(endings)
    while work:
        ending = work.popleft()
        if isinstance(ending, FinalState):
            _make_one_final(core, ending, work)
        elif ending.job.iterations is not None:
            _make_unstarted_final(core, ending, work)
        elif ending.job.state is QUEUED:
            _make_one_final(core, FinalState(ending.job, -1, ending.state, ending.message), work)


def make_ready(core: CoreState, job: Job) -> None:
    """Nothing that all of the job waits for is missing any more: it takes its place in the queue."""
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
    entry = entry_of(job, position)
    entry.make_ready(position)
    core.queue.add(entry, core.now)


def entry_of(job: Job, position: int) -> QueueEntry:
    plan = job.iterations.plan if job.iterations is not None else None
    if plan is None:
        return job.entries[0]
    size = plan.size(position)
    return next(entry for entry in job.entries if entry.size == size)


def _make_one_final(core: CoreState, ending: FinalState, work: Work) -> None:
    job, position = ending.job, ending.position
    if core.state_of(job, position).is_final:
        return
    core.transition(job, position, ending.state, ending.attempt, ending.exit_code, ending.message)
    if position < 0:
        _job_is_final(core, job, work)
    else:
        _iteration_is_final(core, job, position, work)


def _job_is_final(core: CoreState, job: Job, work: Work) -> None:
    dependents = job.dependents
    # What a final job no longer needs.
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
    """Something that all of `job` waits for has ended."""
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
    """The iteration of another job that one iteration of `job` waits for has ended."""
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


def _make_unstarted_final(core: CoreState, rest: UnstartedFinalState, work: Work) -> None:
    job, iterations = rest.job, rest.job.iterations
    assert iterations is not None
    if job.state.is_final:
        return
    queued = iterations.queued()
    those = queued if rest.only is None else both(queued, rest.only)
    settled = iterations.make_final(those, rest.state)
    if settled:
        core.iteration_counts[QUEUED] -= settled
        core.iteration_counts[rest.state] += settled
        if those == queued and _none_can_wait_again(iterations):
            job.message = job.message or rest.message
            core.effects.append(QueuedIterationsFinal(job, rest.state, core.now))
        else:
            core.effects.append(IterationsFinal(job, those, rest.state, core.now, rest.message))
        if job.dependents is not None:
            _unstarted_is_final(core, rest, those, work)
    _finish_iterated(job, work)


def _none_can_wait_again(iterations: Iterations) -> bool:
    """A run that is lost or given back may wait again: a later manager would take it for one of those that were settled
    with all the others."""
    return all(attempt.killed for attempt in iterations.attempts.values())


def _unstarted_is_final(core: CoreState, rest: UnstartedFinalState, settled: Bitmap, work: Work) -> None:
    """Tell those who wait for single iterations."""
    job, iterations = rest.job, rest.job.iterations
    assert iterations is not None
    assert job.dependents is not None
    for position in [key for key in job.dependents.on_position if settled[key]]:
        for other in job.dependents.on_position.pop(position):
            _prerequisite_is_final(core, other, rest.state, name_of(job, position), work)
    for other in [other for other in job.dependents.same_index if not other.state.is_final]:
        if 0 not in settled:
            work.append(UnstartedFinalState(other, OMITTED, f"it waits for {job.name!r}, which is {rest.state.name}"))
        else:
            work += omitted_by_index(other, job, rest.state, settled)


def omitted_by_index(
    job: Job, prerequisite: Job, state: State, settled: Bitmap
) -> list[FinalState | UnstartedFinalState]:
    """What follows for `job` when these iterations of the other one have ended so, and each waits for its own."""
    iterations, others = job.iterations, prerequisite.iterations
    assert iterations is not None
    assert others is not None
    only = both(iterations.queued(), seen_from(settled, others.indices, iterations.indices))
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
