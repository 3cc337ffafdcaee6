"""The result of a manager: its exit code, and the final sentences for the user."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from qcg.pilotjob.common.exit_codes import FAILURE, JOBS_LEFT, UNABLE, killed_by
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.manager.ports import FileProgress
from qcg.pilotjob.manager.shutdown_request import ShutdownRequest
from qcg.pilotjob.runs.liveness import has_agents
from qcg.pilotjob.runs.resume_hint import jobs_left_text, resume_command
from qcg.pilotjob.runs.unfinished import has_no_jobs

log = logging.getLogger(__name__)


class ManagerEnd(msgspec.Struct, frozen=True):
    """Why a manager ended."""

    cause: Cause
    reason: str
    """A clause for the user."""
    signal: int = 0
    """The first signal that ended the manager, 0 without one."""
    unwritten: bool = False
    """Nothing could be written, and the user did not wait: agents keep their jobs."""

    @classmethod
    def of(cls, request: ShutdownRequest, signal: int, *, run_is_left: bool) -> ManagerEnd:
        assert request.cause is not None
        unwritten = run_is_left and request.cause not in (Cause.NO_HOST, Cause.DEFECT)
        return cls(request.cause, request.reason, signal, unwritten)


class RunResult(msgspec.Struct, kw_only=True):
    """The result of one manager of a run."""

    run_dir: Path
    counts: list[int]
    """Number of jobs in each state."""
    end: ManagerEnd
    requests: FileProgress = FileProgress()
    unfinished: int = 0
    """Jobs that were not final when the shutdown began."""
    held: int = 0
    """Jobs that are held."""
    continued: int | None = None
    """Number of jobs that a resumed run continued with; None for a new run, and where jobs were to run again."""
    allocation: str = ""
    """The allocation whose nodes the manager had."""
    batch_system: str = ""
    """Name of the batch system of the allocation."""
    serves: bool = False
    """The manager served clients until the request to finish."""

    @property
    def nothing_accepted(self) -> bool:
        """Requests were refused, and the registry has never had a job: the run directory is of no use."""
        end = self.end
        ended_by_itself = end.cause in (Cause.DONE, Cause.REQUESTS_READ) and not (end.signal or end.unwritten)
        return bool(self.requests.refusals) and ended_by_itself and has_no_jobs(self.run_dir)

    @property
    def jobs_left(self) -> int:
        return sum(self.counts[: State.SUCCEED])

    @property
    def requests_left(self) -> int:
        """Requests of the file that were not carried out. `finish` with `cancel` cancels them like the jobs."""
        return 0 if self.end.cause is Cause.FINISH_AND_CANCEL else self.requests.unread

    @property
    def exit_code(self) -> int:
        if self.end.cause is Cause.DEFECT:
            return UNABLE
        if self.end.signal:
            return killed_by(self.end.signal)
        if self.jobs_left or self.requests_left:
            return JOBS_LEFT
        if self.end.cause is Cause.NO_HOST:
            return UNABLE
        # Where nothing has failed or was cancelled, jobs are OMITTED because an outcome they wait for did not occur.
        return FAILURE if self.counts[State.FAILED] or self.counts[State.CANCELED] or self.requests.errors else 0

    def last_line(self, *, followed: bool = False) -> str:
        """Line about remaining jobs and the resume command; empty when none remain.

        `followed`: another allocation continues without the user."""
        go_on = resume_command(
            self.run_dir, self.allocation, self.batch_system, serves=self.serves, release=bool(self.held)
        ).replace("`", "")
        if self.end.unwritten:
            jobs = ": running jobs continue" if has_agents(self.run_dir) else ""
            sentence = f"Nothing could be written, so the run is left as it is{jobs}."
            return f"{sentence} Free disk space, and continue with: {go_on}"
        if not (self.jobs_left or self.requests_left):
            return ""
        sentence = f"{self._remaining_work()}, because {self.end.reason}."
        if self.end.cause is Cause.FAILURES:  # also where another allocation was to follow
            hint = "" if self.serves else " (--rerun failed repeats failed jobs)"
            return f"{sentence} Continue with: {go_on}{hint}"
        return sentence if followed else f"{sentence} Continue with: {go_on}"

    def headline(self) -> str:
        """A sentence about the end, with numbers of jobs by state. A run with unfinished jobs ends its manager only."""
        summary = ", ".join(f"{self.counts[state]} {state.name}" for state in State if self.counts[state])
        what = "manager" if self.jobs_left or self.requests_left else "run"
        return f"the {what} has ended: {summary or 'no jobs'}"

    def log(self) -> None:
        """Write the last lines of service.log."""
        log.info("%s", self.headline())
        if last_line := self.last_line():
            log.warning("%s", last_line)

    def _remaining_work(self) -> str:
        if not self.requests_left:
            return jobs_left_text(self.jobs_left)
        if not self.jobs_left:
            return f"{pluralize(self.requests_left, 'request of the file is', 'requests of the file are')} left"
        return f"{jobs_left_text(self.jobs_left)}, and {pluralize(self.requests_left, 'request')} of the file"


def count_jobs(state: CoreState, *, run_is_left: bool) -> list[int]:
    """Number of jobs in each state, after the end of the manager."""
    counts = list(state.job_counts)
    if not run_is_left:
        # An iterated job of which some iterations have ended waits for its others.
        counts[State.QUEUED] += counts[State.SCHEDULED] + counts[State.EXECUTING]
        counts[State.SCHEDULED] = counts[State.EXECUTING] = 0
    return counts
