"""A run inside one of its allocations.

The next allocation is asked for at the beginning, to start when this one has ended in whatever way, and is given back
when it is not needed. So jobs that are left go on also when nothing here could say so any more: the first node died, or
Slurm killed everything at the limit.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from qcg.pilotjob.batch.progress_check import is_too_long, longest_of, progress_of, was_told_to_finish
from qcg.pilotjob.batch.times import time_limit
from qcg.pilotjob.cluster import slurm_jobs as slurm
from qcg.pilotjob.cluster.commands import PATIENCE
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm_jobs import environment_for
from qcg.pilotjob.common.environment import HAS_NEXT_ALLOCATION
from qcg.pilotjob.common.exit_codes import JOBS_LEFT
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.runs.chain_state import SCRIPT, read_books, write_books
from qcg.pilotjob.runs.guard import wait_until_free

MOST_DEATHS = 3
"""Of managers in one allocation. What kills them again and again is not mended by starting one more."""
LAST_PATIENCE = 2.0
"""Seconds for the controller to answer when Slurm is about to kill everything, perhaps five seconds later."""
PR_SET_PDEATHSIG = 1
"""Of Linux."""


class InAllocation:
    def __init__(self, directory: Path, run_dir: Path, most: int, run: list[str], environ: Mapping[str, str]) -> None:
        self._directory = directory
        self._run_dir = run_dir
        self._most = most
        self._run = run
        self._environ = environment_for([], dict(environ))
        self._id = environ.get("SLURM_JOB_ID", "")
        self._restarts = int(environ.get("SLURM_RESTART_COUNT", 0))
        self._told_to_end = False
        self._knows_why = False
        """Slurm has said why it ends this allocation."""
        self._queued_again = False
        self._books = read_books(directory)
        if not self._id:
            raise BatchError(f"SLURM_JOB_ID is not set, so this is no job of Slurm; use `sbatch {directory / SCRIPT}`")

    def run(self) -> int:
        """The exit code of the run."""
        if self._id not in self._books.allocations:
            self._books.allocations.append(self._id)  # before Slurm can end this allocation, which looks for it there
        signal.signal(signal.SIGTERM, self._on_term)
        if self._books.cancelled == self._id:
            # It was not, for here it is: queued again, and Slurm did not say so in time.
            self._books.cancelled, self._books.exit_code = "", None
        why_not = self._why_not()
        if why_not:
            say(why_not)
            return self._books.exit_code or 0
        write_books(self._directory, self._books)
        if not self._books.cancelled:
            self._ask_for_next()
        before = progress_of(self._run_dir)
        code = self._run_manager()
        if code == JOBS_LEFT and self._told_to_end and not self._knows_why:
            # Once more: the controller was late. Should it be late again, so that this is killed meanwhile, the next
            # allocation asks.
            self._ask_why(PATIENCE)
        if code == JOBS_LEFT and not self._told_to_end:
            self._take_note_of_progress(before)
        return self._conclude(code)

    def _why_not(self) -> str:
        """A sentence when this allocation is not wanted any more."""
        if self._books.exit_code is not None:
            if self._books.exit_code == JOBS_LEFT:
                return f"No allocation was wanted any more, though jobs were left. {self._how_to_go_on()}"
            return "The run is over; this allocation is not needed."
        before = self._books.allocations[: self._number - 1]
        cancelled = self._books.cancelled or next((job for job in before[-1:] if self._was_cancelled(job)), "")
        if cancelled:
            # Both: whoever waits asks for another allocation where jobs are left and none was cancelled.
            self._books.cancelled, self._books.exit_code = cancelled, JOBS_LEFT
            write_books(self._directory, self._books)
            return f"Job {cancelled} was cancelled, so the run does not go on. {self._how_to_go_on()}"
        return ""

    def _was_cancelled(self, job: str) -> bool:
        """Also when that was done so hard that the job itself could not take note of it."""
        try:
            seen = slurm.look(job, self._environ)
        except BatchError as error:
            say(f"It is not known how job {job} ended: {error}")
            return False
        return seen is not None and seen.state == "CANCELLED"

    # -- the manager ------------------------------------------------------------------------------------------------

    def _run_manager(self) -> int:
        deaths = 0
        while True:
            code = self._run_once()
            if code >= 0:
                return code
            if self._told_to_end or was_told_to_finish(self._run_dir):
                return JOBS_LEFT
            deaths += 1
            name = signal.Signals(-code).name
            if deaths > MOST_DEATHS:
                say(f"The manager was ended by {name} again. {self._how_to_go_on()}")
                return 128 - code
            say(f"The manager was ended by {name}; the run goes on with another one.")

    def _run_once(self) -> int:
        arguments = self._run
        if (self._run_dir / FILE_NAME).exists():
            wait_until_free(self._run_dir)
            if "--resume" not in arguments:  # the options are remembered
                arguments = ["--resume", str(self._run_dir)]
        if self._told_to_end:
            return JOBS_LEFT
        # When this process is killed, Slurm ends the allocation; where it does not track processes well, the manager
        # would go on without nodes, and in the way of the next one.
        environ = {**os.environ, HAS_NEXT_ALLOCATION: self._next} if self._next else None
        return subprocess.call(
            [sys.executable, "-m", "qcg.pilotjob.cli", "run", *arguments], env=environ, preexec_fn=_die_with_parent
        )

    # -- the next allocation ----------------------------------------------------------------------------------------

    @property
    def _number(self) -> int:
        return self._books.allocations.index(self._id) + 1

    @property
    def _next(self) -> str:
        return next(iter(self._books.allocations[self._number :]), "")

    def _ask_for_next(self) -> bool:
        """Whether there will be one."""
        if self._next or self._number >= self._most:
            return bool(self._next)
        try:
            after = f"--dependency=afterany:{self._id}"
            self._books.allocations.append(slurm.submit(self._directory / SCRIPT, self._environ, after))
        except BatchError as error:
            say(f"Allocation {self._number + 1} of at most {self._most} could not be asked for: {error}")
            return False
        write_books(self._directory, self._books)
        say(f"Job {self._next} is allocation {self._number + 1} of at most {self._most}, for what this one leaves.")
        return True

    def _conclude(self, code: int) -> int:
        """Leave the rest to the next allocation, or see to it that there is none."""
        if code == JOBS_LEFT and self._queued_again:
            say("Slurm has queued this job again; it goes on with the run when it starts.")
            return code
        if code == JOBS_LEFT and was_told_to_finish(self._run_dir):
            # As after a cancelled job: nobody asks for another allocation.
            self._books.cancelled = self._id
            say(f"The run was told to finish, and jobs are left. {self._how_to_go_on()}")
        elif code == JOBS_LEFT and self._books.stuck and self._number < self._most:
            say(
                "No job was started or ended in this allocation, and the next one would be like it, so that there is"
                f" none. {longest_of(self._run_dir)}{self._how_to_go_on()}"
            )
        elif code == JOBS_LEFT and not self._books.cancelled:
            if self._ask_for_next():
                say(f"Jobs are left; job {self._next} goes on with them.")
                return code
            if self._most > 1:
                say(f"Jobs are left after allocation {self._number} of at most {self._most}. {self._how_to_go_on()}")
        elif code == JOBS_LEFT and self._most > 1:
            say(f"Job {self._books.cancelled} was cancelled, and jobs are left. {self._how_to_go_on()}")
        self._books.exit_code = code
        write_books(self._directory, self._books)
        self._give_next_back()
        return code

    def _give_next_back(self) -> None:
        if not self._next:
            return
        try:
            slurm.cancel(self._next, self._environ)
        except BatchError as error:
            say(f"Job {self._next} is not needed any more, but could not be cancelled: {error}")
            return
        del self._books.allocations[self._number :]
        write_books(self._directory, self._books)

    def _how_to_go_on(self) -> str:
        return f"To go on: `qcg-pm sbatch --resume {self._run_dir}`."

    def _take_note_of_progress(self, before: tuple[int, int] | None) -> None:
        """What has too little time never gets more; nodes that are missing may be there the next time."""
        idle = before is not None and progress_of(self._run_dir) == before
        self._books.idle = self._books.idle + 1 if idle else 0
        self._books.stuck = idle and (self._books.idle > 1 or is_too_long(self._run_dir, self._seconds()))

    def _seconds(self) -> float | None:
        """Of this allocation in all."""
        try:
            seen = slurm.look(self._id, self._environ)
            minutes = time_limit(seen.limit) if seen is not None else None
        except BatchError as error:
            say(f"It is not known how long this allocation is: {error}")
            return None
        return None if minutes is None else 60.0 * minutes

    # -- the end of this allocation ---------------------------------------------------------------------------------

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        """Slurm ends this allocation. The manager, which is told at the same time, closes the run."""
        if not self._told_to_end:
            self._told_to_end = True
            self._ask_why(LAST_PATIENCE)

    def _ask_why(self, patience: float) -> None:
        try:
            seen = slurm.look(self._id, self._environ, patience)
        except BatchError:
            return
        self._knows_why = True
        if seen is not None and seen.restarts > self._restarts:
            self._queued_again = True
        elif seen is not None and seen.reason == "None":
            # Neither the limit nor a node: the user does not want it any more. At once, for there may be no time left.
            self._books.cancelled = self._id
            write_books(self._directory, self._books)
            self._give_next_back()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def say(sentence: str) -> None:
    print(printable(f"qcg-pm sbatch: {sentence}"), flush=True)
