"""Final states of jobs and iterations, and their consequences: dependents become ready or are omitted, at any depth."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import compress

from msgspec import Struct

from qcg.pilotjob.core.bitmaps import Bitmap, both, seen_from
from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.dependencies import SAME_INDICES, START, OutcomeWait
from qcg.pilotjob.core.effects import AllDone, FailureLimitReached, IterationsFinal, QueuedIterationsFinal, Released
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import EXECUTING, FAILED, OMITTED, QUEUED, SUCCEED, State
from qcg.pilotjob.core.outcomes import has_begun, is_dependency_met, note_begun, take_started, was_noted, why_omitted
from qcg.pilotjob.core.queue import entry_of
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

    Attempts that have started continue.
    """

    job: Job
    state: State
    message: str
    only: Bitmap | None = None
    """The iterations it applies to, if not all that are queued."""


# A work list instead of recursion: dependency chains may be a hundred thousand jobs long.
Work = deque[FinalState | UnstartedFinalState]


def make_final(core: CoreState, *items: FinalState | UnstartedFinalState, at: float | None = None) -> None:
    """Make jobs and iterations final, then their dependents. All items come first, so none of them is omitted because
    of another one. `at`: when it happened, by the clock of a host; None: now."""
    at = core.now if at is None else at
    work: Work = deque(items)
    while work:
        item = work.popleft()
        if isinstance(item, FinalState):
            _make_one_final(core, item, at, work)
        elif item.job.iterations is not None:
            _make_unstarted_final(core, item, at, work)
        elif item.job.state is QUEUED:
            _make_one_final(core, FinalState(item.job, -1, item.state, item.message), at, work)


def make_ready(core: CoreState, job: Job) -> None:
    """Queue the ready positions of a job whose job-wide dependencies are met, except held and pausing positions."""
    iterations, unmet = job.iterations, job.unmet
    if iterations is None and not (core.holds.jobs or core.paused):  # the usual case
        (entry,) = job.entries
        entry.fresh = -1
        core.queue.add(entry, core.now)
        return
    positions: Iterable[int]
    if core.holds and job.seq in core.holds.jobs:
        positions = core.holds.released(job)
    elif iterations is None:
        positions = (-1,)
    elif unmet is not None and unmet.same_index is not None:
        positions = [position for position, missing in enumerate(unmet.same_index) if not missing]
    else:
        positions = tuple(iterations.apart or ())
        for entry in job.entries:
            entry.fresh = 0
            core.queue.add(entry, core.now)
    for position in positions:
        if core.state_of(job, position) is QUEUED and is_met(job, position) and (job.seq, position) not in core.paused:
            make_position_ready(core, job, position)


def is_met(job: Job, position: int) -> bool:
    """Whether all dependencies of a job (position -1) or an iteration are met."""
    unmet = job.unmet
    return unmet is None or not (unmet.on_jobs or (unmet.same_index is not None and unmet.same_index[position]))


def make_position_ready(core: CoreState, job: Job, position: int) -> None:
    """Queue one iteration (or the job, position -1), unless it is held."""
    if core.holds and core.holds.since(job, position):
        return
    entry = entry_of(job, position)
    entry.make_ready(position)
    core.queue.add(entry, core.now)


def forget_next_attempt(core: CoreState, job: Job, position: int) -> None:
    """Forget when, and without which node, a job or iteration was to be started again."""
    core.paused.pop((job.seq, position), None)
    core.health.avoiding.pop((job.seq, position), None)


def _make_one_final(core: CoreState, item: FinalState, at: float, work: Work) -> None:
    job, position = item.job, item.position
    if (job.state if position < 0 else core.state_of(job, position)).is_final:
        return
    core.transition(job, position, item.state, item.attempt, item.exit_code, item.message, at)
    if core.paused or core.health.avoiding:
        forget_next_attempt(core, job, position)
    had_begun = item.attempt is not None and item.attempt.started > 0
    if item.state is not SUCCEED:
        if had_begun:
            note_begun(core, job, position)
        if item.state is FAILED and (position >= 0 or job.iterations is None):
            _count_failures(core, 1)
    if position < 0:
        _job_is_final(core, job, work)
    else:
        _iteration_is_final(core, job, position, had_begun, work)


def _job_is_final(core: CoreState, job: Job, work: Work) -> None:
    dependents = job.dependents
    # Free the memory that a final job no longer needs.
    core.queue.note_final(job)
    job.entries = ()
    if job.iterations is not None:
        job.iterations.apart = job.iterations.apart_by_demand = None
    job.unmet = None
    job.dependents = None
    if core.holds.jobs or core.holds.positions:
        was_held = job.seq in core.holds.jobs
        # The registry keeps the hold of an omitted job, which waits for its release when it is run again.
        if core.holds.drop(job) and not (was_held and job.state is OMITTED):
            core.effects.append(Released(job, -1))
    if dependents is not None:
        for other in dependents.on_job:
            _prerequisite_is_final(core, other, job.state, job.name, work)
        outcomes = dependents.outcomes
        if outcomes is not None:
            for waiting in (*outcomes.get(-1, ()), *outcomes.get(START, ())):
                _settle(core, waiting, job, -1, job.state, work)
    if not (core.job_counts[QUEUED] or core.unfinished):
        core.effects.append(AllDone())


def _iteration_is_final(core: CoreState, job: Job, position: int, had_begun: bool, work: Work) -> None:
    iterations = job.iterations
    assert iterations is not None
    state = iterations.state(position)
    if job.dependents is not None:
        name = name_of(job, position)
        for other in job.dependents.on_position.pop(position, ()):
            _prerequisite_is_final(core, other, state, name, work)
        for other in job.dependents.same_index:
            _same_index_is_final(core, other, iterations.indices[position], state, name, work)
        if job.dependents.outcomes is not None:
            _outcome_of_position(core, job, position, state, had_begun, work)
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


def _outcome_of_position(core: CoreState, job: Job, position: int, state: State, had_begun: bool, work: Work) -> None:
    """Apply the outcome of an iteration to jobs that wait for it. `had_begun`: its last attempt was reported to run."""
    assert job.dependents is not None
    assert job.dependents.outcomes is not None
    for waiting in job.dependents.outcomes.pop(position, ()):
        _settle(core, waiting, job, position, state, work)
    if state is SUCCEED and not had_begun:  # its start was never reported
        for waiting in take_started(job.dependents, -1):
            _settle(core, waiting, job, -1, EXECUTING, work)
    for waiting in job.dependents.outcomes.get(SAME_INDICES, ()):
        # Dependents that wait for a start were notified at the start.
        if waiting.kind != "afterstart" or not (had_begun or was_noted(core, job, position)):
            _settle_index(core, waiting, job, position, state, work)


def position_has_begun(core: CoreState, job: Job, position: int) -> None:
    """Apply the start of a job or iteration to the jobs that wait for it."""
    dependents = job.dependents
    assert dependents is not None
    assert dependents.outcomes is not None
    work: Work = deque()
    for place in {position, -1}:
        for waiting in take_started(dependents, place):
            _settle(core, waiting, job, place, EXECUTING, work)
    for waiting in dependents.outcomes.get(SAME_INDICES, ()):
        if waiting.kind == "afterstart" and not was_noted(core, job, position):
            _settle_index(core, waiting, job, position, EXECUTING, work)
    assert not work


def _settle(core: CoreState, waiting: OutcomeWait, other: Job, position: int, state: State, work: Work) -> None:
    """Apply an outcome to a job that waits for it as a whole: the dependency is met, or the job is omitted."""
    job = waiting.job
    if job.state.is_final:
        return
    if is_dependency_met(waiting.kind, state, begun=has_begun(core, other, position)):
        assert job.unmet is not None
        job.unmet.on_jobs -= 1
        if not job.unmet.on_jobs:
            make_ready(core, job)
    else:
        message = why_omitted(waiting.kind, name_of(other, position), state)
        work.append(UnstartedFinalState(job, OMITTED, message))


def _settle_index(core: CoreState, waiting: OutcomeWait, other: Job, position: int, state: State, work: Work) -> None:
    """Apply an outcome of an iteration to the iteration of a waiting job with the same index."""
    job, iterations = waiting.job, waiting.job.iterations
    assert iterations is not None
    assert other.iterations is not None
    own = iterations.position(other.iterations.indices[position])
    if own is None or job.state.is_final:
        return
    if not is_dependency_met(waiting.kind, state, begun=has_begun(core, other, position)):
        if iterations.states[own] == QUEUED:
            work.append(FinalState(job, own, OMITTED, why_omitted(waiting.kind, name_of(other, position), state)))
        return
    assert job.unmet is not None
    assert job.unmet.same_index is not None
    job.unmet.same_index[own] -= 1
    is_paused = (job.seq, own) in core.paused
    if iterations.states[own] == QUEUED and is_met(job, own) and not is_paused:
        make_position_ready(core, job, own)


def _make_unstarted_final(core: CoreState, item: UnstartedFinalState, at: float, work: Work) -> None:
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
        for position in core.past.get(job.seq, ()):
            if chosen[position]:
                forget_next_attempt(core, job, position)
        if item.state is FAILED:
            _count_failures(core, ended)
        if chosen == queued and _none_can_be_requeued(iterations):
            job.message = job.message or item.message
            core.effects.append(QueuedIterationsFinal(job, item.state, at))
        else:
            core.effects.append(IterationsFinal(job, chosen, item.state, at, item.message))
        if job.dependents is not None:
            _unstarted_is_final(core, item, chosen, work)
    _finish_iterated(job, work)


def _count_failures(core: CoreState, failures: int) -> None:
    if core.failure_limit.add(failures):
        core.effects.append(FailureLimitReached(core.failure_limit.reason))


def _none_can_be_requeued(iterations: Iterations) -> bool:
    """Whether no attempt in progress can be queued again.

    The journal would apply the record for all queued iterations to an iteration that is queued again later.
    """
    return all(attempt.kill_requested for attempt in iterations.attempts.values())


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
    if job.dependents.outcomes is not None:
        for position in compress(range(len(ended)), ended):
            _outcome_of_position(core, job, position, item.state, False, work)


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
