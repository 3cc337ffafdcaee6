"""Dependencies on other outcomes than success: `afterany`, `afternotok` and `afterstart`.

Each is met, or can never be met, by the state of the job or iteration that it names, and by whether that has ever begun
to run. A job that waits for a retry has not ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.dependencies import START, Dependents, OutcomeWait, dependents_of
from qcg.pilotjob.core.job_states import EXECUTING, SUCCEED, State
from qcg.pilotjob.core.records import Attempt, Job
from qcg.pilotjob.description.model import DependencyKind, JobDescription


def entries_of(description: JobDescription) -> Iterator[tuple[DependencyKind, str]]:
    """All dependencies of a job: the kind, and the named job or iteration."""
    for entry in description.after:
        yield "after", entry
    yield from description.outcomes


def is_dependency_met(kind: DependencyKind, state: State, *, begun: bool) -> bool | None:
    """Whether a dependency is met; None while that is undecided."""
    if kind == "afterstart":
        return True if begun else False if state.is_final else None
    if not state.is_final:
        return None
    return kind == "afterany" or (kind == "after") == (state is SUCCEED)


def why_omitted(kind: DependencyKind, name: str, state: State) -> str:
    """Why a job is omitted whose dependency can never be met."""
    if kind == "afternotok":
        return f"it runs only if {name!r} does not succeed, and {name!r} is {state.name}"
    if kind == "afterstart":
        return f"it waits for the start of {name!r}, which is {state.name} and has never started"
    return f"it waits for {name!r}, which is {state.name}"


def why_waits(kind: DependencyKind, name: str, state: State) -> str:
    """What a job waits for, as a phrase after "it waits for"."""
    if kind == "afterstart":
        return f"the start of {name!r}, which is {state.name}"
    if kind == "after":
        return f"{name!r}, which is {state.name}"
    purpose = ", and runs only if that does not succeed" if kind == "afternotok" else ""
    return f"the end of {name!r}, which is {state.name}{purpose}"


def has_begun(core: CoreState, job: Job, position: int) -> bool:
    """Whether a job or iteration runs, or has run, in this or an earlier attempt."""
    noted = core.begun.get(job.seq)
    if job.iterations is not None and position < 0:
        counts = job.iterations.counts
        return bool(noted is not None or counts[EXECUTING] or counts[SUCCEED])
    return core.state_of(job, position) in (EXECUTING, SUCCEED) or was_noted(core, job, position)


def was_noted(core: CoreState, job: Job, position: int) -> bool:
    """Whether an earlier attempt had begun to run without success."""
    noted = core.begun.get(job.seq)
    return noted is not None and bool(noted[max(position, 0)])


def note_begun(core: CoreState, job: Job, position: int) -> None:
    """Remember that an attempt had begun to run: the state of a job without success does not show it."""
    noted = core.begun.get(job.seq)
    if noted is None:
        noted = core.begun[job.seq] = bytearray(1 if job.iterations is None else len(job.iterations))
    noted[max(position, 0)] = 1


def note_attempt(core: CoreState, attempt: Attempt) -> None:
    """Remember that an attempt that ends without success had begun to run, if it had."""
    if attempt.started:
        note_begun(core, attempt.job, attempt.position)


def link(other: Job, waiting: OutcomeWait, place: int) -> None:
    """Register a job that waits for the start or end of another one. `place`: a position, -1 or `SAME_INDICES`."""
    dependents = dependents_of(other)
    if dependents.outcomes is None:
        dependents.outcomes = {}
    key = START if place == -1 and waiting.kind == "afterstart" else place
    dependents.outcomes.setdefault(key, []).append(waiting)


def take_started(dependents: Dependents, place: int) -> list[OutcomeWait]:
    """Take out the jobs that wait for the start of a place."""
    assert dependents.outcomes is not None
    if place == -1:
        return dependents.outcomes.pop(START, [])
    found = dependents.outcomes.get(place, [])
    started = [waiting for waiting in found if waiting.kind == "afterstart"]
    if started:
        dependents.outcomes[place] = [waiting for waiting in found if waiting.kind != "afterstart"]
    return started
