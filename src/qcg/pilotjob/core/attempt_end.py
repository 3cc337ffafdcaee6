"""What becomes of the job when one of its runs is over."""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Requeued
from qcg.pilotjob.core.finalize import FinalState, make_final, make_position_ready
from qcg.pilotjob.core.job_states import CANCELED, FAILED, QUEUED, SUCCEED, State
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.host.records import Ended

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
"""Those that end processes, by their numbers on the machines that jobs run on: a number alone means little to most."""
MOST_LOSSES = 10
"""A job that has lost so many runs is FAILED even where lost ones are run again: it may be what kills its hosts."""


def finish(core: CoreState, attempt: Attempt, record: Ended) -> None:
    """It ended as its host has told."""
    if record.reason == "lost":
        lose_attempt(core, attempt, record.message)
        return
    if record.reason == "closed" or (record.reason == "exit" and record.exit_code and _was_signalled(core, attempt)):
        requeue_attempt(core, attempt)
        return
    state, message = _final_state(record)
    core.remove_attempt(attempt)
    make_final(core, FinalState(attempt.job, attempt.position, state, message, attempt, record.exit_code))


def _was_signalled(core: CoreState, attempt: Attempt) -> bool:
    """That it is to end. Whoever was quicker with the signal, batch system or host: it did not fail by itself."""
    return attempt.stopped or attempt.id in core.warned


def _final_state(record: Ended) -> tuple[State, str]:
    if record.reason == "cancel":
        return CANCELED, record.message
    if record.reason == "exit" and record.exit_code == 0:
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
    whose = ": somebody has killed it, most often the system, for want of memory" if name == "SIGKILL" else ""
    return f"ended by signal {number} ({name}){whose}"


def requeue_attempt(core: CoreState, attempt: Attempt) -> None:
    """It never began, or was ended for no fault of its own: its job waits again, unless it was cancelled."""
    core.remove_attempt(attempt)
    if attempt.killed:
        make_final(core, FinalState(attempt.job, attempt.position, CANCELED, "", attempt))
    else:
        _queue_again(core, attempt)


def lose_attempt(core: CoreState, attempt: Attempt, message: str) -> None:
    """Nobody will ever tell how this run ended."""
    core.remove_attempt(attempt)
    if attempt.killed:
        make_final(core, FinalState(attempt.job, attempt.position, CANCELED, message, attempt))
    elif attempt.stopped or (core.rerun_lost and _losses(core, attempt) < MOST_LOSSES):
        _queue_again(core, attempt)
    else:
        make_final(core, FinalState(attempt.job, attempt.position, FAILED, message, attempt, -1))


def _losses(core: CoreState, attempt: Attempt) -> int:
    """How many runs its place has lost, this one included. Those that never arrived at their host harmed nobody."""
    place = (attempt.job.seq, attempt.position)
    core.losses[place] = core.losses.get(place, 0) + 1
    return core.losses[place]


def _queue_again(core: CoreState, attempt: Attempt) -> None:
    """The id of the run is used up, whether or not it was ever heard of: the next one is another attempt."""
    iterations = attempt.job.iterations
    if iterations is None:
        attempt.job.attempts_made = attempt.number
    else:
        iterations.attempts_made[attempt.position] = attempt.number
    core.effects.append(Requeued(attempt))
    core.transition(attempt.job, attempt.position, QUEUED)
    make_position_ready(core, attempt.job, attempt.position)
