"""Holding jobs and releasing them. Running attempts are not affected."""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.demands import set_demand
from qcg.pilotjob.core.effects import Held, Released
from qcg.pilotjob.core.events import Hold, Release
from qcg.pilotjob.core.finalize import is_met, make_position_ready, make_ready
from qcg.pilotjob.core.job_states import QUEUED
from qcg.pilotjob.core.named_jobs import find, reply
from qcg.pilotjob.core.prefill import is_prefilled, retract_job
from qcg.pilotjob.core.queue import entry_of
from qcg.pilotjob.core.records import Job


def hold(core: CoreState, event: Hold) -> None:
    """Hold waiting jobs and iterations; of an iterated job, the iterations that wait."""
    held, errors = 0, {}
    for name in event.names:
        found = find(core, name)
        refusal = found if isinstance(found, str) else _why_not_held(core, name, *found)
        if refusal or isinstance(found, str):
            errors[name] = refusal
            continue
        hold_one(core, *found)
        retract_job(core, *found)
        held += 1
    reply(core, "held", held, errors)


def release(core: CoreState, event: Release) -> None:
    """Release jobs and iterations; a job with all its iterations."""
    released, errors = 0, {}
    for name in held_names(core) if event.names is None else event.names:
        found = find(core, name)
        if isinstance(found, str):
            errors[name] = found
        elif not (core.holds.has_any(found[0]) if found[1] < 0 else core.holds.since(*found)):
            errors[name] = f"job {name!r} is not held"
        else:
            _release_one(core, *found)
            released += 1
    reply(core, "released", released, errors)


def hold_one(core: CoreState, job: Job, position: int) -> None:
    """Hold a job or an iteration that waits."""
    if position < 0:
        for entry in job.all_entries():
            core.queue.drop_ready(entry)
    else:
        entry = entry_of(job, position)
        entry.withdraw(position)
        set_demand(core, job, position, entry.demand)
    core.holds.hold(job, position, core.now)
    core.effects.append(Held(job, position, core.now))


def held_names(core: CoreState) -> list[str]:
    """The names of jobs that are held, or have iterations that are held."""
    return [job.name for job in core.jobs.values() if core.holds.has_any(job)] if core.holds else []


def count_held(core: CoreState) -> int:
    """The number of jobs that are held, or have waiting iterations that are held."""
    seqs = set(core.holds.jobs)
    for seq, of_job in core.holds.positions.items():
        job = core.find_seq(seq)
        if job is not None and any(since and core.state_of(job, one) is QUEUED for one, since in of_job.items()):
            seqs.add(seq)
    return len(seqs)


def _why_not_held(core: CoreState, name: str, job: Job, position: int) -> str:
    """Why a job or iteration cannot be held; empty if it can be."""
    state = core.state_of(job, position)
    if state.is_final:
        return f"job {name!r} is already {state.name}"
    if position < 0 and job.iterations is not None:
        if not (job.iterations.counts[QUEUED] or any(map(is_prefilled, job.attempts_in_progress()))):
            return f"job {name!r} has no iteration that waits; running ones cannot be held"
        if job.seq in core.holds.jobs and not core.holds.released(job):
            return f"job {name!r} is held already"
        return ""
    if state is not QUEUED and not any(map(is_prefilled, job.attempts_in_progress(position))):
        return f"job {name!r} is {state.name}; only a waiting job can be held"
    return f"job {name!r} is held already" if core.holds.since(job, position) else ""


def _release_one(core: CoreState, job: Job, position: int) -> None:
    core.effects.append(Released(job, position, position >= 0 and job.seq in core.holds.jobs))
    core.holds.release(job, position)
    if position < 0:
        if job.unmet is None or not job.unmet.on_jobs:
            make_ready(core, job)
    elif core.state_of(job, position) is QUEUED and is_met(job, position) and (job.seq, position) not in core.paused:
        make_position_ready(core, job, position)
