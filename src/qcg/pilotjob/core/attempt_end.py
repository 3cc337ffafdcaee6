"""The end of an attempt: its job becomes final, or is queued again."""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.finalize import FinalState, make_final
from qcg.pilotjob.core.job_states import CANCELED, FAILED, SUCCEED, State
from qcg.pilotjob.core.node_health import attempt_failed, attempt_lost, attempt_succeeded
from qcg.pilotjob.core.queue import entry_of
from qcg.pilotjob.core.records import Attempt, PastAttempt
from qcg.pilotjob.core.retries import policy_of, queue_again, retry_attempt, try_elsewhere
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
"""Lost attempts after which a job is FAILED even if lost attempts are rerun: the job itself may crash its hosts."""
MEMORY_ADVICE = 'With "retry": {"on": ["memory"], "grow": {"mem": 2}} it starts again with more.'


def finish_attempt(core: CoreState, attempt: Attempt, record: Ended, at: float | None = None) -> None:
    """Handle the end record of an attempt. `at`: when it ended, by the clock of its host; None: now."""
    if record.reason == EndReason.EXIT and not record.exit_code:  # first, because it is the usual case
        core.remove_attempt(attempt)
        if core.health.failures or core.past:
            attempt_succeeded(core, attempt)
        make_final(core, FinalState(attempt.job, attempt.position, SUCCEED, "", attempt, 0), at=at)
        return
    if record.reason == EndReason.LOST:
        lose_attempt(core, attempt, record.message, at)
        return
    if record.reason == EndReason.CLOSED or (
        record.reason == EndReason.EXIT and record.exit_code and _was_signalled(core, attempt)
    ):
        requeue_attempt(core, attempt, at)
        return
    state, message = _final_state(record)
    core.remove_attempt(attempt)
    if state is FAILED:
        cause = cause_of(record)
        attempt_failed(core, attempt, started=record.started > 0 and cause != EndReason.UNSTARTABLE)
        if retry_attempt(core, attempt, cause, record.exit_code, message, at):
            return
        if cause == EndReason.UNSTARTABLE and try_elsewhere(core, attempt, message, at):
            return
        if cause == EndReason.MEMORY and _may_grow(core, attempt):
            message = f"{message} {MEMORY_ADVICE}"
        message = _after_retries(core, attempt, message)
    make_final(core, FinalState(attempt.job, attempt.position, state, message, attempt, record.exit_code), at=at)


def cause_of(record: Ended) -> str:
    """The cause of `retry` that the end of a failed attempt belongs to."""
    if record.reason == EndReason.EXIT:
        return "signal" if record.exit_code < 0 else "exit"
    return record.reason


def _after_retries(core: CoreState, attempt: Attempt, message: str) -> str:
    """The message of a job that fails, with the number of the attempt if it was retried."""
    past = core.past_of(attempt.job, attempt.position)
    return (
        f"{message} (attempt {attempt.ordinal})" if past is not None and (past.retries or past.unstartable) else message
    )


def _may_grow(core: CoreState, attempt: Attempt) -> bool:
    """Whether a retry policy for memory would help: the job asks for memory, and is not retried for the lack of it."""
    policy = policy_of(core, attempt.job)
    asked = entry_of(attempt.job, attempt.position).line.request.memory
    return asked > 0 and (policy is None or not policy.budgets.get(EndReason.MEMORY))


def _was_signalled(core: CoreState, attempt: Attempt) -> bool:
    """Whether the batch system or the manager told the attempt to end, so that its exit code is not its own failure."""
    return attempt.stop_requested or attempt.id in core.warned


def _final_state(record: Ended) -> tuple[State, str]:
    """The state and message of a job whose attempt ended without success."""
    if record.reason == EndReason.CANCEL:
        return CANCELED, record.message
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


def requeue_attempt(core: CoreState, attempt: Attempt, at: float | None = None) -> None:
    """Queue the job again after an attempt that never started or was ended by the manager, unless it is cancelled."""
    core.remove_attempt(attempt)
    if attempt.kill_requested:
        make_final(core, FinalState(attempt.job, attempt.position, CANCELED, "", attempt), at=at)
    else:
        past = None
        if attempt.started:
            past = PastAttempt(EndReason.CLOSED, core.now if at is None else at, message="ended by its manager")
        queue_again(core, attempt, past, at)


def lose_attempt(core: CoreState, attempt: Attempt, message: str, at: float | None = None) -> None:
    """Handle an attempt whose end will never be known."""
    attempt_lost(core, attempt)
    core.remove_attempt(attempt)
    ended = core.now if at is None else at
    if attempt.kill_requested:
        make_final(core, FinalState(attempt.job, attempt.position, CANCELED, message, attempt), at=at)
    elif attempt.stop_requested or core.shutdown is not None:
        # Also one that had ended by itself, when its nodes ended before they confirmed that nothing of it is left.
        queue_again(core, attempt, PastAttempt(EndReason.LOST, ended, None, message), at)
    elif retry_attempt(core, attempt, EndReason.LOST, -1, message, at):
        return
    elif core.rerun_lost and _losses(core, attempt) < MAX_LOSSES:
        queue_again(core, attempt, PastAttempt(EndReason.LOST, ended, None, message), at)
    else:
        message = _after_retries(core, attempt, message)
        make_final(core, FinalState(attempt.job, attempt.position, FAILED, message, attempt, -1), at=at)


def _losses(core: CoreState, attempt: Attempt) -> int:
    """Count this loss, and return the losses of the job or iteration."""
    unit = (attempt.job.seq, attempt.position)
    core.losses[unit] = core.losses.get(unit, 0) + 1
    return core.losses[unit]
