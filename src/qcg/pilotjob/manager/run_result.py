"""The result of a manager: exit code, and the sentences that its user reads at the end."""

from __future__ import annotations

from pathlib import Path

import msgspec

from qcg.pilotjob.common.exit_codes import FAILURE, JOBS_LEFT, UNABLE, killed_by
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.runs.discovery import has_agents, never_had_jobs
from qcg.pilotjob.runs.resume_hint import are_left, how_to_go_on


class Ending(msgspec.Struct, kw_only=True):
    run_dir: Path
    counts: list[int]
    """Number of jobs in each state."""
    cause: Cause
    reason: str
    """Why the manager ended, as a clause."""
    unfinished: int = 0
    """Jobs that were not final when the shutdown began."""
    unread: int = 0
    """Requests of the file that were not carried out."""
    request_errors: int = 0
    refusals: list[str] = []
    """Error messages for requests of the file that were refused."""
    signal: int = 0
    """The first signal that ended the manager, 0 without one."""
    continued: int | None = None
    """Number of jobs that a resumed run continued with; None for a new run."""
    allocation: str = ""
    """The allocation whose nodes the manager had."""
    serves: bool = False
    """The manager served clients until it was told to finish."""
    unwritten: bool = False
    """Nothing could be written, and the user did not wait: agents keep their jobs."""

    @property
    def nothing_accepted(self) -> bool:
        """Requests were refused, and the registry has never had a job: the run directory is of no use."""
        ended_by_itself = self.cause in (Cause.DONE, Cause.REQUESTS_READ) and not (self.signal or self.unwritten)
        return bool(self.refusals) and ended_by_itself and never_had_jobs(self.run_dir)

    @property
    def jobs_left(self) -> int:
        return sum(self.counts[: State.SUCCEED])

    @property
    def exit_code(self) -> int:
        if self.cause is Cause.DEFECT:
            return UNABLE
        if self.signal:
            return killed_by(self.signal)
        if self.jobs_left or self.unread:
            return JOBS_LEFT
        if self.cause is Cause.NO_AGENT:
            return UNABLE
        return 0 if self.counts[State.SUCCEED] == sum(self.counts) and not self.request_errors else FAILURE

    def last_line(self, *, followed: bool = False) -> str:
        """How many jobs and requests are left, why, and the command that continues with them; empty without any.

        `followed`: another allocation continues without the user."""
        go_on = how_to_go_on(self.run_dir, self.allocation, serves=self.serves).replace("`", "")
        if self.unwritten:
            runs = ": what runs goes on" if has_agents(self.run_dir) else ""
            return f"Nothing could be written, so the run is left as it is{runs}. Make room, and go on with: {go_on}"
        if not (self.jobs_left or self.unread):
            return ""
        sentence = f"{self._what_is_left()}, because {self.reason}."
        return sentence if followed else f"{sentence} Go on with: {go_on}"

    def _what_is_left(self) -> str:
        if not self.unread:
            return are_left(self.jobs_left)
        requests = "1 request" if self.unread == 1 else f"{self.unread} requests"
        if not self.jobs_left:
            return f"{requests} of the file {'is' if self.unread == 1 else 'are'} left"
        return f"{are_left(self.jobs_left)}, and {requests} of the file"
