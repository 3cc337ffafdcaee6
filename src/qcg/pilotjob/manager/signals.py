"""Signals to a manager: SIGINT, SIGTERM and SIGHUP end it, and a second SIGINT or SIGTERM ends it at once. Also handles
errors that no other code handles."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Any

from qcg.pilotjob.common.wording import list_names, pluralize
from qcg.pilotjob.core.shutdown import KILL_GRACE, Cause
from qcg.pilotjob.manager.deadline import ManagerDeadline
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.manager.shutdown import ShutdownSequence
from qcg.pilotjob.manager.shutdown_request import ShutdownRequest

log = logging.getLogger(__name__)

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EarlySignals:
    """Keeps signals that come before a manager can act on them: from the creation of its run directory on, a signal
    must not interrupt a step half-way."""

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []
        # `nohup` ignores SIGHUP for the programs that it starts.
        self.watched = [number for number in WATCHED if not _is_ignored_hangup(number)]
        for number in self.watched:
            asyncio.get_running_loop().add_signal_handler(number, self.received.append, number)

    def end(self) -> None:
        """Restore the default handling. Calling it again does nothing."""
        for number in self.watched:
            asyncio.get_running_loop().remove_signal_handler(number)


class SignalWatch:
    """Turns signals into shutdown requests, between `begin` and `end`. Later signals only shorten the shutdown."""

    def __init__(
        self,
        early: EarlySignals,
        engine: Engine,
        request: ShutdownRequest,
        sequence: ShutdownSequence,
        deadline: ManagerDeadline,
        *,
        in_allocation: bool,
    ) -> None:
        self._early = early
        self._engine = engine
        self._request = request
        self._sequence = sequence
        self._deadline = deadline
        self._in_allocation = in_allocation
        self.first = 0
        """The first signal, except a SIGTERM by which the batch system announces the end of the allocation."""
        self.hurry = asyncio.Event()
        """Set by SIGINT and SIGTERM after `end`."""

    def begin(self) -> None:
        """Act on signals from now on, and on the early signals."""
        for number in self._early.watched:
            asyncio.get_running_loop().add_signal_handler(number, self._received, number)
        for number in self._early.received:
            self._received(number)

    def end(self) -> None:
        """The run is over. A signal must not prevent its result any more."""
        for number in self._early.watched:
            asyncio.get_running_loop().add_signal_handler(number, self._received_at_end, number)

    def _received_at_end(self, number: signal.Signals) -> None:
        log.info("%s: the manager ends already", number.name)
        if number is not signal.SIGHUP:
            self.hurry.set()

    def _received(self, number: signal.Signals) -> None:
        if self._in_allocation and number is signal.SIGTERM and not self.first:
            # The batch system may send it several times.
            self._deadline.end_now("the allocation ends (SIGTERM)")
            return
        is_repeated = self._request.is_requested
        if is_repeated and number is signal.SIGHUP:
            self._engine.notice(f"{number.name}: the manager ends already")
        else:
            self._engine.notice(f"{number.name}: {self._consequence(is_repeated=is_repeated)}")
            if is_repeated:
                self._request.urgent.set()
        self.first = self.first or number
        self._request.request(Cause.SIGNAL, f"the manager got {number.name}")

    def _consequence(self, *, is_repeated: bool) -> str:
        self._engine.commits.try_to_commit()  # the disk may be full, and nothing was written since
        cannot_write = self._engine.commits.stalled or self._sequence.waits_for_disk
        if is_repeated:
            return "the run is left as it is, to be resumed" if cannot_write else self._killed_at_once()
        jobs = self._jobs_left()
        if cannot_write:
            return (
                f"nothing can be written, and the end waits for that: once there is room, {jobs}; a second signal"
                " leaves the run as it is, to be resumed"
            )
        attempts = self._engine.state.executing
        if not attempts:
            return jobs
        running = pluralize(attempts, "running attempt has", "running attempts have")
        them = "it" if attempts == 1 else "them"
        return f"stopping. {running} {KILL_GRACE:g} s to end (the next signal kills {them}); {jobs}"

    def _killed_at_once(self) -> str:
        state = self._engine.state
        used = {part.node for attempt in state.attempts.values() for part in attempt.grant.parts}
        away = sorted(used & state.unreachable_since.keys())
        if not away:
            return "running jobs are killed at once"
        are = "are" if len(away) > 1 else "is"
        return f"running jobs are killed at once, except on {list_names(away)}, which {are} unreachable"

    def _jobs_left(self) -> str:
        state = self._engine.state
        if not state.unfinished:
            return "the manager ends"
        iterations = state.unfinished_iterations
        those = f" with {pluralize(iterations, 'iteration')}" if iterations else ""
        return f"{pluralize(state.unfinished, f'job{those} is', f'jobs{those} are')} left for --resume"


def _is_ignored_hangup(number: signal.Signals) -> bool:
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


def give_up_on_unexpected_errors(shutdown: ShutdownRequest, run_dir: Path) -> None:
    """Log exceptions that no code handles. After one in a callback the run is left, to be resumed."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        log.critical("unexpected: %s", context["message"], exc_info=context.get("exception"))
        if "handle" in context and shutdown.cause is not Cause.DEFECT:  # in a callback: nothing else handles it
            shutdown.give_up_after_defect(run_dir)

    asyncio.get_running_loop().set_exception_handler(handle)
