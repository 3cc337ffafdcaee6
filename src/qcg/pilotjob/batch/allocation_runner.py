"""Runs the manager inside one allocation of a chain.

The next allocation is submitted at the beginning, to start when this one is over for whatever reason, and is cancelled
when it is not needed. So the run continues even if nothing here can ask for it any more: the first node died, or the
batch system killed everything at the time limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from qcg.pilotjob.batch.progress_check import is_too_long, longest_of, progress_of, why_to_end
from qcg.pilotjob.cluster.base import BatchSystem, EndCause
from qcg.pilotjob.cluster.commands import COMMAND_TIMEOUT
from qcg.pilotjob.cluster.errors import BatchError, ClusterError
from qcg.pilotjob.cluster.registry import queue_of, system_in_use
from qcg.pilotjob.common.environment import HAS_NEXT_ALLOCATION
from qcg.pilotjob.common.exit_codes import JOBS_LEFT
from qcg.pilotjob.common.parent_death import die_with_parent
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.runs.chain_state import SCRIPT, read_chain_state, write_chain_state
from qcg.pilotjob.runs.guard import wait_for_manager_end

MOST_DEATHS = 3
"""Managers that may be killed in one allocation before no other one is started."""
LAST_COMMAND_TIMEOUT = 2.0
"""Seconds for the batch system to answer when it is about to kill everything, perhaps five seconds later."""


class AllocationRunner:
    """Runs the manager in the allocation of this process, and submits the next allocation of the chain."""

    def __init__(self, directory: Path, run_dir: Path, most: int, run: list[str], environ: Mapping[str, str]) -> None:
        """`directory`: the directory of the batch script and the chain state. `run`: the arguments of `qcg-pm run`."""
        system = system_in_use(environ)
        allocation = None if system is None else system.allocation_ref(environ)
        if system is None or allocation is None:
            raise BatchError(f"this is not inside an allocation of a batch system; submit {directory / SCRIPT} to it")
        self._directory = directory
        self._run_dir = run_dir
        self._most = most
        self._run = run
        self._label = system.label
        self._queue = queue_of(system.name)
        self._environ = self._queue.command_environment(environ)
        self._id = allocation.id
        self._restarts = _restarts(system, environ)
        self._signals_all = system.signals_all_processes
        self._manager: subprocess.Popen[bytes] | None = None
        self._told_to_end = False
        self._knows_why = False
        """The batch system has said why it ends this allocation."""
        self._queued_again = False
        self._chain = read_chain_state(directory)

    def run(self) -> int:
        """The exit code of the run."""
        if self._id not in self._chain.allocations:
            self._chain.allocations.append(self._id)  # before a signal can come: its handler needs it
        signal.signal(signal.SIGTERM, self._on_term)
        if self._chain.cancelled == self._id:
            # It was queued again instead, and the batch system did not report that in time.
            self._chain.cancelled, self._chain.exit_code = "", None
        why_not = self._why_not()
        if why_not:
            self._say(why_not)
            return self._chain.exit_code or 0
        write_chain_state(self._directory, self._chain)
        if not self._chain.cancelled:
            self._submit_next()
        before = progress_of(self._run_dir)
        code = self._run_manager()
        if code == JOBS_LEFT and self._told_to_end and not self._knows_why:
            # The batch system was late, so it is asked again. If this process is killed meanwhile, the next allocation
            # asks.
            self._ask_why(COMMAND_TIMEOUT)
        if code == JOBS_LEFT and not self._told_to_end:
            self._record_progress(before)
        return self._conclude(code)

    def _why_not(self) -> str:
        """A sentence when this allocation is not needed any more."""
        if self._chain.exit_code is not None:
            if self._chain.exit_code == JOBS_LEFT:
                return f"No allocation was wanted any more, though jobs were left. {self._resume_hint()}"
            return "The run is over; this allocation is not needed."
        before = self._chain.allocations[: self._number - 1]
        cancelled = self._chain.cancelled or next((job for job in before[-1:] if self._was_cancelled(job)), "")
        if cancelled:
            # Both are set: `--wait` submits another allocation when jobs are left and none was cancelled.
            self._chain.cancelled, self._chain.exit_code = cancelled, JOBS_LEFT
            write_chain_state(self._directory, self._chain)
            return f"Job {cancelled} was cancelled, so the run does not continue. {self._resume_hint()}"
        return ""

    def _was_cancelled(self, job: str) -> bool:
        """Whether a job was cancelled, even if it was killed before it could record that."""
        try:
            seen = self._queue.view(job, self._environ)
        except BatchError as error:
            self._say(f"It is not known how job {job} ended: {error}")
            return False
        return seen is not None and seen.was_cancelled

    # -- the manager ------------------------------------------------------------------------------------------------

    def _run_manager(self) -> int:
        deaths = 0
        while True:
            code = self._run_once()
            if code >= 0:
                return code
            if self._told_to_end or why_to_end(self._run_dir):
                return JOBS_LEFT
            deaths += 1
            name = signal.Signals(-code).name
            if deaths > MOST_DEATHS:
                self._say(f"The manager was ended by {name} again. {self._resume_hint()}")
                return 128 - code
            self._say(f"The manager was ended by {name}; another manager continues the run.")

    def _run_once(self) -> int:
        arguments = self._run
        if (self._run_dir / FILE_NAME).exists():
            wait_for_manager_end(self._run_dir)
            if "--resume" not in arguments:  # the options are remembered
                arguments = ["--resume", str(self._run_dir)]
        if self._told_to_end:
            return JOBS_LEFT
        # When this process is killed, the batch system ends the allocation. Where it does not track processes well, the
        # manager would continue without nodes, and keep the next one from starting.
        environ = {**os.environ, HAS_NEXT_ALLOCATION: self._next} if self._next else None
        words = [sys.executable, "-m", "qcg.pilotjob.cli", "run", *arguments]
        with subprocess.Popen(words, env=environ, preexec_fn=die_with_parent) as self._manager:
            self._forward_term()  # a signal that came while the manager was started
            return self._manager.wait()

    # -- the next allocation ----------------------------------------------------------------------------------------

    @property
    def _number(self) -> int:
        return self._chain.allocations.index(self._id) + 1

    @property
    def _next(self) -> str:
        return next(iter(self._chain.allocations[self._number :]), "")

    def _submit_next(self) -> bool:
        """Submit the next allocation, where there may be one; whether there is one."""
        if self._next or self._number >= self._most:
            return bool(self._next)
        try:
            following = self._queue.submit(self._directory / SCRIPT, self._environ, after=self._id)
            self._chain.allocations.append(following)
        except BatchError as error:
            self._say(f"Allocation {self._number + 1} of at most {self._most} could not be asked for: {error}")
            return False
        write_chain_state(self._directory, self._chain)
        self._say(f"Job {self._next} is allocation {self._number + 1} of at most {self._most}, for remaining jobs.")
        return True

    def _conclude(self, code: int) -> int:
        """Leave unfinished jobs to the next allocation, or cancel it."""
        if code == JOBS_LEFT and self._queued_again:
            self._say(f"{self._label} has queued this job again; it continues the run when it starts.")
            return code
        if code == JOBS_LEFT and (why := why_to_end(self._run_dir)):
            # As after a cancelled job: no further allocation is submitted.
            self._chain.cancelled = self._id
            self._say(f"{why}, and jobs are left. {self._resume_hint()}")
        elif code == JOBS_LEFT and self._chain.stuck and self._number < self._most:
            self._say(
                "No job was started or ended in this allocation, and the next one would be like it, so that there is"
                f" none. {longest_of(self._run_dir)}{self._resume_hint()}"
            )
        elif code == JOBS_LEFT and not self._chain.cancelled:
            if self._submit_next():
                self._say(f"Jobs are left; job {self._next} continues with them.")
                return code
            if self._most > 1:
                self._say(
                    f"Jobs are left after allocation {self._number} of at most {self._most}. {self._resume_hint()}"
                )
        elif code == JOBS_LEFT and self._most > 1:
            self._say(f"Job {self._chain.cancelled} was cancelled, and jobs are left. {self._resume_hint()}")
        self._chain.exit_code = code
        write_chain_state(self._directory, self._chain)
        self._cancel_next()
        return code

    def _cancel_next(self) -> None:
        if not self._next:
            return
        try:
            self._queue.cancel(self._next, self._environ)
        except BatchError as error:
            self._say(f"Job {self._next} is not needed any more, but could not be cancelled: {error}")
            return
        del self._chain.allocations[self._number :]
        write_chain_state(self._directory, self._chain)

    def _resume_hint(self) -> str:
        return f"To continue: `qcg-pm {self._queue.qcg_pm_command} --resume {self._run_dir}`."

    def _say(self, sentence: str) -> None:
        """Print a sentence into the output of the allocation."""
        print(printable(f"qcg-pm {self._queue.qcg_pm_command}: {sentence}"), flush=True)

    def _record_progress(self, before: tuple[int, int] | None) -> None:
        """Detect a chain that is stuck: a job needs more time than an allocation has, or two allocations were idle."""
        idle = before is not None and progress_of(self._run_dir) == before
        self._chain.idle = self._chain.idle + 1 if idle else 0
        self._chain.stuck = idle and (self._chain.idle > 1 or is_too_long(self._run_dir, self._seconds()))

    def _seconds(self) -> float | None:
        """The length of this allocation in seconds; None when it is unlimited or not known."""
        try:
            seen = self._queue.view(self._id, self._environ)
        except BatchError as error:
            self._say(f"It is not known how long this allocation is: {error}")
            return None
        return None if seen is None else seen.limit

    # -- the end of this allocation ---------------------------------------------------------------------------------

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        """The batch system ends this allocation. The manager gets the same signal, and shuts down."""
        if not self._told_to_end:
            self._told_to_end = True
            self._forward_term()
            self._ask_why(LAST_COMMAND_TIMEOUT)

    def _forward_term(self) -> None:
        """Pass SIGTERM on to the manager, where the batch system does not send it to every process."""
        if self._told_to_end and self._manager is not None and not self._signals_all:
            self._manager.send_signal(signal.SIGTERM)

    def _ask_why(self, patience: float) -> None:
        try:
            seen = self._queue.view(self._id, self._environ, patience)
        except BatchError:
            return
        self._knows_why = True
        if seen is not None and self._restarts is not None and seen.requeue_count > self._restarts:
            self._queued_again = True
        elif seen is not None and seen.end_cause is EndCause.CANCELLED:
            # Recorded at once: there may be no time left.
            self._chain.cancelled = self._id
            write_chain_state(self._directory, self._chain)
            self._cancel_next()


def _restarts(system: BatchSystem, environ: Mapping[str, str]) -> int | None:
    """How often this allocation was queued again; None where the batch system does not report it."""
    try:
        return system.requeue_count(environ)
    except ClusterError:
        return None
