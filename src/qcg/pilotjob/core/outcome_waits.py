"""Lets jobs wait for the outcomes of others: at their submission, and again when one of the others is run again."""

from __future__ import annotations

from collections.abc import Collection

from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.dependencies import (
    SAME_INDICES,
    OutcomeWait,
    Prerequisite,
    UnmetDependencies,
    is_later,
    resolve,
)
from qcg.pilotjob.core.finalize import (
    MAX_SINGLE_TRANSITIONS,
    FinalState,
    UnstartedFinalState,
    is_met,
    make_final,
    make_position_ready,
)
from qcg.pilotjob.core.job_states import OMITTED, QUEUED
from qcg.pilotjob.core.outcomes import has_begun, is_dependency_met, link, why_omitted
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.encoding import OUTCOMES_KEY, decode_spec, prerequisite_names
from qcg.pilotjob.description.model import JobDescription


def wait_for_outcome(core: CoreState, job: Job, unmet: UnmetDependencies, prerequisite: Prerequisite) -> None:
    """Count a dependency that is undecided. The job, or an iteration, is omitted if it can never be met."""
    if prerequisite.same_index:
        _wait_for_same_index(core, job, unmet, prerequisite)
        return
    other, kind = prerequisite.job, prerequisite.kind
    position = -1 if prerequisite.position is None else prerequisite.position
    state = core.state_of(other, position)
    met = is_dependency_met(kind, state, begun=has_begun(core, other, position))
    if met is None:
        unmet.on_jobs += 1
        link(other, OutcomeWait(job, kind), position)
    elif not met:
        make_final(core, UnstartedFinalState(job, OMITTED, why_omitted(kind, name_of(other, position), state)))


def _wait_for_same_index(core: CoreState, job: Job, unmet: UnmetDependencies, prerequisite: Prerequisite) -> None:
    other, kind = prerequisite.job, prerequisite.kind
    iterations, others = job.iterations, other.iterations
    assert iterations is not None
    assert others is not None
    if unmet.same_index is None:
        unmet.same_index = bytearray(len(iterations))
    if not other.state.is_final:
        link(other, OutcomeWait(job, kind), SAME_INDICES)
    omitted: list[FinalState | UnstartedFinalState] = []
    never = bytearray(len(iterations))
    for position, index in enumerate(iterations.indices):
        place = others.indices.index(index)
        state = others.state(place)
        met = is_dependency_met(kind, state, begun=has_begun(core, other, place))
        if met is None:
            unmet.same_index[position] += 1
        elif not met and iterations.states[position] == QUEUED:
            never[position] = 1
            if len(omitted) <= MAX_SINGLE_TRANSITIONS:
                omitted.append(FinalState(job, position, OMITTED, why_omitted(kind, name_of(other, place), state)))
    if len(omitted) > MAX_SINGLE_TRANSITIONS:
        message = f"it waits for an outcome of the same index of {other.name!r} that can no longer occur"
        omitted = [UnstartedFinalState(job, OMITTED, message, bytes(never))]
    make_final(core, *omitted)


def why_never_met(core: CoreState, job: Job, position: int) -> str | None:
    """Why a job or iteration that waits can never start: an outcome is not the one it waits for. None if it may start.

    For a job that had started, and waits again after its prerequisite was run again."""
    if job.spec is None or OUTCOMES_KEY not in job.spec:
        return None
    indices = None if job.iterations is None else job.iterations.indices
    for kind, entry in decode_spec(job.spec).outcomes:
        found = resolve(job.name, entry, indices, core.jobs, kind=kind)
        # A later job may have got the name of a prerequisite that was removed.
        if isinstance(found, str) or is_later(found.job, job):
            continue
        place = -1 if found.position is None else found.position
        if found.same_index:
            assert job.iterations is not None
            assert found.job.iterations is not None
            place = found.job.iterations.indices.index(job.iterations.indices[position])
        state = core.state_of(found.job, place)
        if is_dependency_met(kind, state, begun=has_begun(core, found.job, place)) is False:
            return why_omitted(kind, name_of(found.job, place), state)
    return None


def waiting_for_outcomes(core: CoreState, jobs: Collection[Job]) -> list[tuple[Job, JobDescription]]:
    """The jobs that are not final, not among `jobs`, name one of them as a prerequisite, and may wait for other
    outcomes than success."""
    names = {job.name for job in jobs}
    return [
        (job, decode_spec(job.spec))
        for job in core.jobs.values()
        if not job.state.is_final
        and job not in jobs
        and job.spec is not None
        and OUTCOMES_KEY in job.spec
        and not names.isdisjoint(prerequisite_names(job.spec))
    ]


def queue_ready_positions(core: CoreState, job: Job) -> None:
    """Queue exactly the positions whose dependencies are met, after the dependencies of a job were counted again."""
    iterations = job.iterations
    grown = iterations.apart_by_demand if iterations is not None else None
    for entry in (*job.entries, *(grown or {}).values()):
        entry.fresh = entry.ready = None
    for position in range(len(iterations)) if iterations is not None else (-1,):
        if is_met(job, position) and core.state_of(job, position) is QUEUED and (job.seq, position) not in core.paused:
            make_position_ready(core, job, position)
