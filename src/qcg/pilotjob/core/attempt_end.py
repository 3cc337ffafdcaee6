"""The end of an attempt: its job becomes final, or is queued again."""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Requeued
from qcg.pilotjob.core.finalize import FinalState, make_final, make_position_ready
from qcg.pilotjob.core.job_states import CANCELED, FAILED, QUEUED, SUCCEED, State
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.host.records import Ended, EndReason

SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
"""Names of the signals that end processes, by number as on Linux."""
MAX_LOSSES = 10
"""Lost attempts after which a job is FAILED even if lost attempts are rerun: it may be what kills its hosts."""


def finish_attempt(core: CoreState, attempt: Attempt, record: Ended) -> None:
    """Handle the end record of an attempt."""
    if record.reason == EndReason.LOST:
        lose_attempt(core, attempt, record.message)
        return
    if record.reason == EndReason.CLOSED or (
        record.reason == EndReason.EXIT and record.exit_code and _was_signalled(core, attempt)
    ):
        requeue_attempt(core, attempt)
        return
    state, message = _final_state(record)
    core.remove_attempt(attempt)
    make_final(core, FinalState(attempt.job, attempt.position, state, message, attempt, record.exit_code))


def _was_signalled(core: CoreState, attempt: Attempt) -> bool:
    """Whether the batch system or the manager told the attempt to end, so that its exit code is not its own failure."""
    return attempt.stopped or attempt.id in core.warned


def _final_state(record: Ended) -> tuple[State, str]:
    if record.reason == EndReason.CANCEL:
        return CANCELED, record.message
    if record.reason == EndReason.EXIT and record.exit_code == 0:
        return SUCCEED, ""
    if record.message:
        return FAILED, record.message
    if record.exit_code < 0:
        return FAILED, _by_signal(-record.exit_code)
    return FAILED, f"exit code {record.exit_code}"


def _by_signal(number: int) -> str:
    name = SIGNALS.get(number)
    if name is None:
        return f"ended by signal {number}"
    cause = ": it was killed, most often by the system when memory runs out" if name == "SIGKILL" else ""
    return f"ended by signal {number} ({name}){cause}"


def requeue_attempt(core: CoreState, attempt: Attempt) -> None:
    """Queue the job again after an attempt that never started or was ended by the manager, unless it is cancelled."""
    core.remove_attempt(attempt)
    if attempt.killed:
        make_final(core, FinalState(attempt.job, attempt.position, CANCELED, "", attempt))
    else:
        _queue_again(core, attempt)


def lose_attempt(core: CoreState, attempt: Attempt, message: str) -> None:
    """Handle an attempt whose end will never be known."""
    core.remove_attempt(attempt)
    if attempt.killed:
        make_final(core, FinalState(attempt.job, attempt.position, CANCELED, message, attempt))
    elif attempt.stopped or (core.rerun_lost and _losses(core, attempt) < MAX_LOSSES):
        _queue_again(core, attempt)
    else:
        make_final(core, FinalState(attempt.job, attempt.position, FAILED, message, attempt, -1))


def _losses(core: CoreState, attempt: Attempt) -> int:
    """Count this loss, and return the losses of the job or iteration. Attempts that never started do not count."""
    unit = (attempt.job.seq, attempt.position)
    core.losses[unit] = core.losses.get(unit, 0) + 1
    return core.losses[unit]


def _queue_again(core: CoreState, attempt: Attempt) -> None:
    """Queue the job or iteration again. The attempt number is used up even if the attempt never started."""
    iterations = attempt.job.iterations
    if iterations is None:
        attempt.job.attempts_made = attempt.number
    else:
        iterations.attempts_made[attempt.position] = attempt.number
    core.effects.append(Requeued(attempt))
    core.transition(attempt.job, attempt.position, QUEUED)
    make_position_ready(core, attempt.job, attempt.position)
