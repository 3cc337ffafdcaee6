"""How a run ended, and what its user is told of it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from qcg.pilotjob.core.states import State
from qcg.pilotjob.going_on import how_to_go_on
from qcg.pilotjob.runs import has_agents, never_had_jobs

LEFT = 4
"""Exit code of a run whose time was over before its jobs."""


class Ending(msgspec.Struct):
    """How a run ended, for the exit code and the closing table."""

    run_dir: Path
    counts: list[int]
    """Of jobs, by state."""
    request_errors: int
    cut_off: int
    """Jobs that were not final when the service ended."""
    trouble: str
    """Why the service could not go on, when it could not."""
    signal: int
    refusals: list[str]
    """What was said to requests that were refused."""
    told: bool
    """It ended because it was told to."""
    continued: int | None
    """How many jobs a resumed run went on with; None for a new run."""
    suspended: str = ""
    """Why it ended before its jobs, when it did; another manager goes on with them."""
    allocation: str = ""
    """The Slurm job whose nodes it had."""
    left: bool = False
    """Nothing could be written, and nobody wanted to wait: its agents keep what they run."""

    @property
    def nothing_accepted(self) -> bool:
        """Requests were refused, and the registry has never had a job: the run directory is of no use."""
        ended_by_itself = not (self.signal or self.trouble or self.left or self.suspended)
        return bool(self.refusals) and ended_by_itself and never_had_jobs(self.run_dir)

    def what_is_left(self, *, followed: bool = False) -> str:
        """`followed`: another allocation goes on by itself, so that there is nothing to do."""
        left = sum(self.counts[: State.SUCCEED])
        jobs = "1 job is" if left == 1 else f"{left} jobs are"
        sentence = f"{jobs} left, because {self.suspended}."
        go_on = how_to_go_on(self.run_dir, self.allocation).replace("`", "")
        return sentence if followed else f"{sentence} Go on with: {go_on}"

    def how_it_was_left(self) -> str:
        go_on = how_to_go_on(self.run_dir, self.allocation).replace("`", "")
        runs = ": what runs goes on" if has_agents(self.run_dir) else ""
        return f"Nothing could be written, so the run is left as it is{runs}. Make room, and go on with: {go_on}"

    @property
    def exit_code(self) -> int:
        if self.suspended:
            return LEFT
        if self.signal:
            return 128 + self.signal
        if self.trouble:
            return 3
        return 0 if self.counts[State.SUCCEED] == sum(self.counts) and not self.request_errors else 1
