"""Jobs that have begun to run after an outcome of others, and do not run again when the others are rerun."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.dependencies import Prerequisite, is_later
from qcg.pilotjob.core.job_states import EXECUTING, QUEUED, SUCCEED
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.submission import NewJob, find_prerequisites
from qcg.pilotjob.description.encoding import OUTCOMES_KEY
from qcg.pilotjob.journal.descriptions import decode_description, prerequisites_of
from qcg.pilotjob.manager.engine import Engine

MOST_WARNINGS = 10


def stale_dependents(engine: Engine, rerun: Collection[str]) -> list[str]:
    """A warning for each job that has begun, waited for another outcome than success of a job in `rerun`, and does not
    run again. `rerun`: names of jobs that have just been queued again."""
    jobs = engine.state.jobs
    again = {name for name in rerun if name in jobs}
    if not again:
        return []
    warnings: list[str] = []
    for job, spec in _begun(engine):
        if again.isdisjoint(prerequisites_of(spec, job.seq, job.name)):
            continue
        one = NewJob(job, decode_description(spec, job.seq, job.name), ())
        find_prerequisites(one, jobs)
        stale = [
            wait
            for wait in one.prerequisites
            if wait.kind != "after" and wait.job.name in again and not is_later(wait.job, job)
        ]
        found = next((wait for wait in stale if _is_stale(engine.state, job, wait)), None)
        if found is not None:
            warnings.append(
                f"job {job.name!r} ({found.kind} {found.job.name!r}) has run before and does not run again; its results"
                " may be out of date"
            )
    further = len(warnings) - MOST_WARNINGS
    return [*warnings[:MOST_WARNINGS], f"{further} more such jobs have run before"] if further > 0 else warnings


def _begun(engine: Engine) -> Iterator[tuple[Job, bytes]]:
    """Jobs that have succeeded or run in a part and wait for other outcomes than success, and their encoded
    descriptions."""
    begun = {job.seq: job for job in engine.state.jobs.values() if _has_begun(job)}
    ended = []
    for job in begun.values():
        if job.spec is None:
            ended.append(job.seq)
        elif OUTCOMES_KEY in job.spec:
            yield job, job.spec
    # The registry searches the descriptions: there may be a million of them.
    for seq, spec in engine.journal.specs_of(ended, OUTCOMES_KEY) if ended else ():
        yield begun[seq], spec


def _has_begun(job: Job) -> bool:
    if job.iterations is None:
        return job.state in (SUCCEED, EXECUTING)
    return bool(job.iterations.counts[SUCCEED] or job.iterations.counts[EXECUTING])


def _is_stale(core: CoreState, job: Job, wait: Prerequisite) -> bool:
    """Whether the job or an iteration of it has begun after an outcome that is open again."""
    other = wait.job
    if not wait.same_index or job.iterations is None or other.iterations is None:
        return core.state_of(other, -1 if wait.position is None else wait.position) is QUEUED
    return any(
        job.iterations.states[position] in (SUCCEED, EXECUTING)
        and other.iterations.state(other.iterations.indices.index(index)) is QUEUED
        for position, index in enumerate(job.iterations.indices)
    )
