"""Follows a run through its allocations: shows their states and their output until the run is over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from qcg.pilotjob.cluster.base import AllocationQueue, AllocationView, Phase
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.common.exit_codes import JOBS_LEFT, UNABLE
from qcg.pilotjob.common.terminal_output import ProgramOutput
from qcg.pilotjob.runs.chain_state import SCRIPT, ChainState, read_chain_state, write_chain_state

FILES_EVERY = 0.3
"""Seconds between two reads of the files of the run."""
FIRST_QUESTION, LAST_QUESTION = 1.0, 20.0
"""Seconds between two questions to the batch system, which serves many users: first and longest pause."""
SHOWN = (Phase.WAITING, Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED)
"""Phases that are shown. The run itself reports the end of the allocation."""


class Follower:
    """Follows one chain of allocations."""

    def __init__(
        self,
        queue: AllocationQueue,
        directory: Path,
        job_id: str,
        most: int,
        environ: Mapping[str, str],
        notify: Callable[[str], None],
    ) -> None:
        """`directory`: the directory of the batch script and the chain state. `notify` prints a sentence for the
        user."""
        self._queue = queue
        self._directory = directory
        self._most = most
        self._environ = environ
        self._notify = notify
        self._begin(job_id)

    def _begin(self, job_id: str) -> None:
        self._job = job_id
        self._seen: AllocationView | None = None
        self._shown = 0
        self._output = ProgramOutput()
        self._pause = FIRST_QUESTION
        self._question = 0.0

    def wait(self) -> int:
        """The exit code of the run, when it is over and no further allocation follows."""
        while True:
            state = read_chain_state(self._directory)
            ended = self._ask() or state.exit_code is not None
            self._show_output()
            if state.exit_code is not None:
                self._show_the_rest(state)
                if not self._continue(state):
                    return state.exit_code
            elif ended:
                # Read again: the job may have written it after it was read above.
                state = read_chain_state(self._directory)
                if state.exit_code is None and not self._follow_next(state):
                    return self._unfinished()
            time.sleep(FILES_EVERY)

    def _ask(self) -> bool:
        """Ask the batch system when it is time to; whether the allocation has ended."""
        if time.monotonic() < self._question:
            return False
        try:
            seen = self._queue.view(self._job, self._environ)
        except BatchError as error:
            self._notify(f"The state of job {self._job} cannot be read: {error}")
            self._wait_longer()
            return False
        if seen is None:
            return True
        before, self._seen = self._seen, seen
        if before is None or (before.state, before.reason) != (seen.state, seen.reason):
            self._pause = FIRST_QUESTION
            if seen.phase in SHOWN:
                self._notify(str(seen))
                if seen.blocked:
                    self._notify(seen.blocked)
        self._wait_longer()
        return seen.is_over

    def _wait_longer(self) -> None:
        self._question = time.monotonic() + self._pause
        self._pause = min(LAST_QUESTION, 1.5 * self._pause)

    def _show_output(self) -> None:
        """Show the output since the last call."""
        if self._seen is None or not self._seen.output:
            return
        try:
            with open(self._seen.output, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._shown:
                    self._shown = 0  # the file was truncated, because the job was queued again
                file.seek(self._shown)
                new = file.read()
        except OSError:
            return  # it has not begun, or only the nodes see its output file
        self._shown += len(new)
        self._output.write(new)
        self._output.flush()

    def _show_the_rest(self, state: ChainState) -> None:
        """Show the output of allocations that began and ended since the last question to the batch system."""
        for job in self._after(state):
            try:
                seen = self._queue.view(job, self._environ)
            except BatchError as error:
                self._notify(f"The state of job {job} cannot be read, so its output is not shown: {error}")
                continue
            if seen is not None and seen.output and os.path.exists(seen.output):
                self._turn_to(job)
                self._seen = seen
                self._show_output()

    def _after(self, state: ChainState) -> list[str]:
        known = state.allocations
        return known[known.index(self._job) + 1 :] if self._job in known else []

    def _turn_to(self, job: str) -> None:
        self._notify(f"Job {self._job} has ended; job {job} is next.")
        self._begin(job)

    def _follow_next(self, state: ChainState) -> bool:
        """Follow the next allocation, where there is one."""
        following = self._after(state)
        if following:
            self._turn_to(following[0])
        return bool(following)

    def _continue(self, state: ChainState) -> bool:
        """Submit another allocation from here when jobs are left, and the last one was not allowed to submit it."""
        if state.exit_code != JOBS_LEFT or state.cancelled or state.stuck or len(state.allocations) >= self._most:
            return False
        write_chain_state(self._directory, msgspec.structs.replace(state, exit_code=None))
        try:
            following = self._queue.submit(self._directory / SCRIPT, self._environ, self._job)
        except BatchError as error:
            write_chain_state(self._directory, state)
            self._notify(
                f"Allocation {len(state.allocations) + 1} of at most {self._most} was refused here too: {error}"
            )
            return False
        self._notify(f"Jobs are left; job {following} was submitted from here.")
        self._begin(following)
        return True

    def _unfinished(self) -> int:
        """The exit code after an allocation without a record: cancelled while it waited, or killed at its limit."""
        if self._seen is None or not self._seen.is_over:
            self._notify(
                f"Job {self._job} is not known to the batch system any more, and it left no record of how the run"
                " ended."
            )
            return UNABLE
        self._notify(f"Job {self._job} ended ({self._seen.state}) before the run did.")
        return self._seen.exit_code or UNABLE
