"""Cancelling and removing jobs, and the effect of a manager's shutdown on jobs that are not final."""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import AllDone, FailureLimitCleared, Kill, Removed, Stop
from qcg.pilotjob.core.events import Cancel, Deadline, Remove, ShutDown, Warned, Withdraw
from qcg.pilotjob.core.finalize import FinalState, UnstartedFinalState, make_final
from qcg.pilotjob.core.job_states import CANCELED, FAILED
from qcg.pilotjob.core.named_jobs import find, reply
from qcg.pilotjob.core.records import Attempt, Job
from qcg.pilotjob.core.shutdown import Disposition
from qcg.pilotjob.host.records import EndReason


def cancel(core: CoreState, event: Cancel) -> None:
    """Cancel jobs and iterations in one step, so that one that depends on another is CANCELED, not OMITTED."""
    chosen: dict[tuple[str, int], Job] = {}
    errors: dict[str, str] = {}
    for name in event.names:
        found = find(core, name)
        if isinstance(found, str):
            errors[name] = found
            continue
        job, position = found
        state = core.state_of(job, position)
        if state.is_final:
            errors[name] = f"job {name!r} is already {state.name}"
            continue
        chosen[job.name, position] = job
    final_states: list[FinalState | UnstartedFinalState] = []
    for (_, position), job in chosen.items():
        if position < 0:
            _kill_attempts(core, job)
            final_states.append(UnstartedFinalState(job, CANCELED, ""))
        elif job.iterations is not None and (attempt := job.iterations.attempts.get(position)) is not None:
            _kill(core, attempt)
        else:
            final_states.append(FinalState(job, position, CANCELED))
    make_final(core, *final_states)
    reply(core, "canceled", len(chosen), errors)


def remove(core: CoreState, event: Remove) -> None:
    """Remove final jobs from the registry, so that their names can be used again."""
    removed = failures = 0
    errors: dict[str, str] = {}
    for name in event.names:
        job = core.jobs.get(name)
        if job is None:
            found = find(core, name)
            whole = name.partition(":")[0]
            errors[name] = found if isinstance(found, str) else f"an iteration cannot be removed; remove {whole!r}"
        elif not job.state.is_final:
            errors[name] = f"job {name!r} is {job.state.name}; only a job that has ended can be removed"
        else:
            failures += _failures_of(job)
            core.unregister(job)
            core.effects.append(Removed(job))
            removed += 1
    reply(core, "removed", removed, errors)
    if event.refused:
        _uncount_failures(core, failures)


def withdraw(core: CoreState, event: Withdraw) -> None:
    """Forget jobs that could not be stored. They are CANCELED, so that queue lines and dependencies skip them,
    and their failures do not count."""
    before = core.unfinished
    failures = 0
    for name in event.names:
        job = core.jobs[name]
        failures += _failures_of(job)
        core.unregister(job)
        job.state = CANCELED
        core.effects.append(Removed(job))
    if before and not core.unfinished:
        core.effects.append(AllDone())
    _uncount_failures(core, failures)


def deadline(core: CoreState, event: Deadline) -> None:
    if event.at is None or event.at > core.now:
        core.warned.clear()  # the end was put off: from now on, exit codes are those of the attempts themselves
    core.deadline = event.at


def warned(core: CoreState, event: Warned) -> None:
    core.warned = set(core.attempts)


def shut_down(core: CoreState, event: ShutDown) -> None:
    """Start nothing more, and end running attempts. The record of each end arrives later from its host."""
    core.shutdown = event.disposition
    if event.disposition is Disposition.CANCEL_ALL:
        _cancel_all(core, event.message)
    elif event.disposition is not Disposition.LEAVE:
        _end_attempts(core, event)


def _end_attempts(core: CoreState, event: ShutDown) -> None:
    running = []
    for attempt in [attempt for attempt in core.attempts.values() if not attempt.kill_requested]:
        cleanup = core.cleanups.get(attempt.id)
        if cleanup is not None and cleanup.ended is not None:
            continue  # it has ended by itself, and only other nodes have not confirmed that yet
        if event.disposition is Disposition.CANCEL_RUNNING and attempt.started:
            running.append(attempt)
        elif not attempt.stop_requested:
            attempt.stop_requested = True
            core.effects.append(Stop(attempt, EndReason.CLOSED, event.message))
    # After the prefilled attempts, which are waiting jobs to their users: none of these starts when one before it ends.
    for attempt in running:
        _kill(core, attempt)


def _failures_of(job: Job) -> int:
    """How often a job counts as failed for `--stop-after`."""
    return int(job.state is FAILED) if job.iterations is None else job.iterations.counts[FAILED]


def _uncount_failures(core: CoreState, failures: int) -> None:
    if core.failure_limit.uncount(failures):
        core.effects.append(FailureLimitCleared())


def _cancel_all(core: CoreState, message: str) -> None:
    """Cancel all jobs in one step, so that the state of a job does not depend on the order: none is OMITTED."""
    jobs = [job for job in core.jobs.values() if not job.state.is_final]
    for job in jobs:
        _kill_attempts(core, job)
    make_final(core, *(UnstartedFinalState(job, CANCELED, message) for job in jobs))


def _kill_attempts(core: CoreState, job: Job) -> None:
    for attempt in job.attempts_in_progress():
        _kill(core, attempt)


def _kill(core: CoreState, attempt: Attempt) -> None:
    """Request a kill; the attempt ends when its host reports it."""
    attempt.kill_requested = True
    core.effects.append(Kill(attempt))
