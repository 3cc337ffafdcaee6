"""Changes of the resource requests, wall times and priorities of waiting jobs."""

from __future__ import annotations

import msgspec

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Redescribed
from qcg.pilotjob.core.events import SetJobs
from qcg.pilotjob.core.finalize import make_ready
from qcg.pilotjob.core.job_states import QUEUED
from qcg.pilotjob.core.named_jobs import find, reply
from qcg.pilotjob.core.prefill import is_prefilled, retract_job
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.retries import prepare_next_attempt
from qcg.pilotjob.core.submission import entries_for, sized_requests
from qcg.pilotjob.description.changes import JobChange, changed_description
from qcg.pilotjob.description.encoding import decode_spec
from qcg.pilotjob.description.errors import DescriptionError


def set_jobs(core: CoreState, event: SetJobs) -> None:
    """Change waiting jobs; of an iterated job, the iterations that wait."""
    changed, errors = 0, {}
    for name in event.names:
        refusal = _change(core, name, event.change)
        if refusal:
            errors[name] = refusal
        else:
            changed += 1
    reply(core, "changed", changed, errors)


def _change(core: CoreState, name: str, change: JobChange) -> str:
    """Change one job. Returns why the change is refused; empty if it was made."""
    found = find(core, name)
    if isinstance(found, str):
        return found
    job, position = found
    if position >= 0:
        return f"an iteration cannot be changed on its own; change {job.name!r}"
    if refusal := _why_not_now(job, change):
        return refusal
    assert job.spec is not None
    description = changed_description(decode_spec(job.spec), change)
    if isinstance(description, str):
        return f"job {name!r} cannot be changed: {description}"
    try:
        requests, plan = sized_requests(core, description)
    except DescriptionError as error:
        return f"job {name!r} cannot be changed: {error}"
    entries = entries_for(core, job, description, requests)
    for entry in entries:
        if entry.line.never is not None:
            return f"job {name!r} cannot be changed: {entry.line.never}"
    job.spec = msgspec.msgpack.encode(description)
    core.effects.append(Redescribed(job))
    for entry in job.all_entries():
        core.queue.drop_ready(entry)
    job.entries = entries
    _restore_own_demands(core, job)
    if job.iterations is not None:
        job.iterations.plan = plan
    retract_job(core, job)
    if (job.unmet is None or not job.unmet.on_jobs) and (job.iterations is not None or job.state is QUEUED):
        make_ready(core, job)
    return ""


def _why_not_now(job: Job, change: JobChange) -> str:
    """Why the state of a job does not allow the change; empty if it does."""
    if job.state.is_final:
        return f"job {job.name!r} is already {job.state.name}"
    attempts = job.attempts_in_progress()
    prefilled = [attempt for attempt in attempts if is_prefilled(attempt)]
    if job.iterations is None:
        waits = job.state is QUEUED or prefilled
        return "" if waits else f"job {job.name!r} is {job.state.name}; only a waiting job can be changed"
    if not (job.iterations.counts[QUEUED] or prefilled):
        return f"job {job.name!r} has no iteration that waits; running ones cannot be changed"
    if len(prefilled) < len(attempts) and not change.is_priority_alone:
        return (
            f"job {job.name!r} has running iterations, so only its priority can be changed now; hold it, change it when"
            " they have ended, and release it"
        )
    return ""


def _restore_own_demands(core: CoreState, job: Job) -> None:
    """Set the demands of positions with queue entries of their own again, from the new description."""
    if job.iterations is None:
        if core.past_of(job, -1) is not None:
            prepare_next_attempt(core, job, -1)
        return
    positions = list(job.iterations.apart or ())
    job.iterations.apart = job.iterations.apart_by_demand = None
    for position in positions:
        if not core.state_of(job, position).is_final:
            prepare_next_attempt(core, job, position)
