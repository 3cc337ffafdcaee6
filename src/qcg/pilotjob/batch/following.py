"""Waits for a run in its allocations, and shows what it prints there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from qcg.pilotjob.cluster import slurm_jobs as slurm
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm_jobs import JobView
from qcg.pilotjob.common.exit_codes import JOBS_LEFT, UNABLE
from qcg.pilotjob.common.terminal_output import ProgramOutput
from qcg.pilotjob.runs.chain_state import SCRIPT, Books, read_books, write_books

GLANCE = 0.3
"""Seconds between two looks at the files of the run, which tell most."""
FIRST_QUESTION, LAST_QUESTION = 1.0, 20.0
"""Seconds between two questions to the controller, which serves many: more and more."""
TOLD = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED")
"""States that people are told of. How the job ended, the run itself tells."""


class Following:
    def __init__(
        self, directory: Path, job_id: str, most: int, environ: Mapping[str, str], tell: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._most = most
        self._environ = environ
        self._tell = tell
        self._begin(job_id)

    def _begin(self, job_id: str) -> None:
        self._job = job_id
        self._seen: JobView | None = None
        self._shown = 0
        self._output = ProgramOutput()
        self._pause = FIRST_QUESTION
        self._question = 0.0

    def wait(self) -> int:
        """The exit code of the run, when it is over and no further allocation follows."""
        while True:
            books = read_books(self._directory)
            ended = self._ask() or books.exit_code is not None
            self._show_output()
            if books.exit_code is not None:
                self._show_the_rest(books)
                if not self._continue(books):
                    return books.exit_code
            elif ended:
                # Once more: the last words of a job may be younger than what was read above.
                books = read_books(self._directory)
                if books.exit_code is None and not self._goes_on(books):
                    return self._unfinished()
            time.sleep(GLANCE)

    def _ask(self) -> bool:
        """Ask the controller, when it is time to; whether the job has ended."""
        if time.monotonic() < self._question:
            return False
        try:
            seen = slurm.look(self._job, self._environ)
        except BatchError as error:
            self._tell(f"Job {self._job} cannot be looked at: {error}")
            self._wait_longer()
            return False
        if seen is None:
            return True
        before, self._seen = self._seen, seen
        if before is None or (before.state, before.reason) != (seen.state, seen.reason):
            self._pause = FIRST_QUESTION
            if seen.state in TOLD:
                self._tell(str(seen))
                if seen.hopeless:
                    self._tell(seen.hopeless)
        self._wait_longer()
        return seen.is_over

    def _wait_longer(self) -> None:
        self._question = time.monotonic() + self._pause
        self._pause = min(LAST_QUESTION, 1.5 * self._pause)

    def _show_output(self) -> None:
        """What the job has written since the last look."""
        if self._seen is None or not self._seen.output:
            return
        try:
            with open(self._seen.output, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._shown:
                    self._shown = 0  # begun anew, because the job was queued again
                file.seek(self._shown)
                new = file.read()
        except OSError:
            return  # it has not begun, or its output is kept where only nodes get to
        self._shown += len(new)
        self._output.write(new)
        self._output.flush()

    def _show_the_rest(self, books: Books) -> None:
        """Of allocations that began and ended since the controller was asked the last time."""
        for job in self._after(books):
            try:
                seen = slurm.look(job, self._environ)
            except BatchError as error:
                self._tell(f"Job {job} cannot be looked at, so its output is not shown: {error}")
                continue
            if seen is not None and seen.output and os.path.exists(seen.output):
                self._turn_to(job)
                self._seen = seen
                self._show_output()

    def _after(self, books: Books) -> list[str]:
        known = books.allocations
        return known[known.index(self._job) + 1 :] if self._job in known else []

    def _turn_to(self, job: str) -> None:
        self._tell(f"Job {self._job} has ended; job {job} is next.")
        self._begin(job)

    def _goes_on(self, books: Books) -> bool:
        """Turn to the next allocation, where there is one."""
        following = self._after(books)
        if following:
            self._turn_to(following[0])
        return bool(following)

    def _continue(self, books: Books) -> bool:
        """Ask for another allocation from here, when jobs are left and the last one could not: not all nodes may."""
        if books.exit_code != JOBS_LEFT or books.cancelled or books.stuck or len(books.allocations) >= self._most:
            return False
        after = f"--dependency=afterany:{self._job}"
        write_books(self._directory, msgspec.structs.replace(books, exit_code=None))
        try:
            following = slurm.submit(self._directory / SCRIPT, self._environ, after)
        except BatchError as error:
            write_books(self._directory, books)
            self._tell(f"Allocation {len(books.allocations) + 1} of at most {self._most} was refused here too: {error}")
            return False
        self._tell(f"Jobs are left; job {following} was submitted from here.")
        self._begin(following)
        return True

    def _unfinished(self) -> int:
        """It ended without a word about the run: cancelled while it waited, or killed at the limit."""
        if self._seen is None or not self._seen.is_over:
            self._tell(f"Job {self._job} is not known to Slurm any more, and it left no word how the run ended.")
            return UNABLE
        self._tell(f"Job {self._job} ended ({self._seen.state}) before the run did.")
        return self._seen.exit_code or UNABLE
