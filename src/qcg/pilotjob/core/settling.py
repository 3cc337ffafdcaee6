"""A job or an iteration becomes final, and what follows: others become ready or are omitted, through any depth."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from qcg.pilotjob.core.effects import AllDone, RestSettled
from qcg.pilotjob.core.queue import Entry
from qcg.pilotjob.core.records import Job, Run
from qcg.pilotjob.core.state import CoreState, name_of
from qcg.pilotjob.core.states import OMITTED, QUEUED, SUCCEED, State


class Outcome(Struct, frozen=True, gc=False):
    """How a job (position -1) or an iteration ended."""

    job: Job
    position: int
    state: State
    message: str = ""
    run: Run | None = None
    exit_code: int | None = None


class Rest(Struct, frozen=True, gc=False):
    """All of a job that has not started ends: the job itself, or its iterations together. What is under way goes on."""

    job: Job
    state: State
    message: str


# What is still to be settled. A worklist instead of recursion: chains may be a hundred thousand jobs long.
Work = deque[Outcome | Rest]


def settle(core: CoreState, ending: Outcome | Rest) -> None:
    """Make it final, with all consequences."""
    work: Work = deque()
    while True:
        if isinstance(ending, Outcome):
            _settle_one(core, ending, work)
        elif ending.job.iterations is not None:
            _settle_rest(core, ending, work)
        elif ending.job.state is QUEUED:
            _settle_one(core, Outcome(ending.job, -1, ending.state, ending.message), work)
        if not work:
            return
        ending = work.popleft()


def make_ready(core: CoreState, job: Job) -> None:
    """Nothing that all of the job waits for is missing any more: it takes its place in the queue."""
    waiting = job.waiting
    if job.iterations is None:
        (entry,) = job.entries
        entry.fresh = -1
        core.queue.enter(entry, core.now)
    elif waiting is not None and waiting.by_position is not None:
        for position, missing in enumerate(waiting.by_position):
            if not missing:
                make_position_ready(core, job, position)
    else:
        for entry in job.entries:
            entry.fresh = 0
            core.queue.enter(entry, core.now)


def make_position_ready(core: CoreState, job: Job, position: int) -> None:
    entry = entry_of(job, position)
    entry.make_ready(position)
    core.queue.enter(entry, core.now)


def entry_of(job: Job, position: int) -> Entry:
    plan = job.iterations.plan if job.iterations is not None else None
    if plan is None:
        return job.entries[0]
    size = plan.size(position)
    return next(entry for entry in job.entries if entry.size == size)


def _settle_one(core: CoreState, ending: Outcome, work: Work) -> None:
    job, position = ending.job, ending.position
    if core.state_of(job, position).is_final:
        return
    core.enter(job, position, ending.state, ending.run, ending.exit_code, ending.message)
    if position < 0:
        _job_is_final(core, job, work)
    else:
        _iteration_is_final(core, job, position, work)


def _job_is_final(core: CoreState, job: Job, work: Work) -> None:
    dependents = job.dependents
    # What a final job no longer needs.
    core.queue.leave(job)
    job.entries = ()
    job.waiting = None
    job.dependents = None
    if dependents is not None:
        for other in dependents.whole:
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
        work.append(Outcome(job, -1, iterations.outcome(), job.message))


def _prerequisite_is_final(core: CoreState, job: Job, state: State, name: str, work: Work) -> None:
    """Something that all of `job` waits for has ended."""
    if job.state.is_final:
        return
    assert job.waiting is not None
    if state is SUCCEED:
        job.waiting.whole -= 1
        if not job.waiting.whole:
            make_ready(core, job)
        return
    work.append(Rest(job, OMITTED, f"it waits for {name!r}, which is {state.name}"))


def _same_index_is_final(core: CoreState, job: Job, index: int, state: State, name: str, work: Work) -> None:
    """The iteration of another job that one iteration of `job` waits for has ended."""
    assert job.iterations is not None
    position = job.iterations.position(index)
    if position is None or job.state.is_final:
        return
    if state is not SUCCEED:
        if job.iterations.states[position] == QUEUED:
            work.append(Outcome(job, position, OMITTED, f"it waits for {name!r}, which is {state.name}"))
        return
    assert job.waiting is not None
    assert job.waiting.by_position is not None
    job.waiting.by_position[position] -= 1
    if not job.waiting.by_position[position] and not job.waiting.whole:
        make_position_ready(core, job, position)


def _settle_rest(core: CoreState, rest: Rest, work: Work) -> None:
    job, iterations = rest.job, rest.job.iterations
    assert iterations is not None
    if job.state.is_final:
        return
    before = iterations.states
    settled = iterations.settle_rest(rest.state)
    if settled:
        core.iteration_counts[QUEUED] -= settled
        core.iteration_counts[rest.state] += settled
        job.message = job.message or rest.message
        core.effects.append(RestSettled(job, rest.state, core.now))
        if job.dependents is not None:
            _rest_is_final(core, rest, before, settled, work)
    _finish_iterated(job, work)


def _rest_is_final(core: CoreState, rest: Rest, before: bytearray, settled: int, work: Work) -> None:
    """Tell those who wait for single iterations; `before` has the states from before the rest was settled."""
    job, iterations = rest.job, rest.job.iterations
    assert iterations is not None
    assert job.dependents is not None
    for position in [key for key in job.dependents.on_position if before[key] == QUEUED]:
        for other in job.dependents.on_position.pop(position):
            _prerequisite_is_final(core, other, rest.state, name_of(job, position), work)
    for other in job.dependents.same_index:
        if settled == len(iterations):
            message = f"it waits for {job.name!r}, which is {rest.state.name}"
            work.append(Rest(other, OMITTED, message))
            continue
        for position, earlier in enumerate(before):
            if earlier == QUEUED:
                name = name_of(job, position)
                _same_index_is_final(core, other, iterations.indices[position], rest.state, name, work)
