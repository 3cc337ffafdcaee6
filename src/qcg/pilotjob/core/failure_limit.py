"""The limit of `--stop-after`: after so many failures nothing more is started, and the manager ends."""

from __future__ import annotations

from qcg.pilotjob.core.feasibility import count


class FailureLimit:
    """Failures of jobs and iterations under this manager, and how many of them it takes."""

    __slots__ = ("failures", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """0: none."""
        self.failures = 0
        """Jobs without iterations, and iterations, that became FAILED; attempts that are retried do not count."""

    @property
    def is_reached(self) -> bool:
        return 0 < self.limit <= self.failures

    def add(self, failures: int) -> bool:
        """Count failures; True if the limit is reached with them."""
        was_reached = self.is_reached
        self.failures += failures
        return self.is_reached and not was_reached

    def uncount(self, failures: int) -> bool:
        """Do not count these failures any more; True if the limit is no longer reached without them."""
        was_reached = self.is_reached
        self.failures -= failures
        return was_reached and not self.is_reached

    @property
    def reason(self) -> str:
        """Why nothing is started, as a clause; empty below the limit."""
        if not self.is_reached:
            return ""
        was = "was" if self.failures == 1 else "were"
        return f"there {was} {count(self.failures, 'failure')} (--stop-after {self.limit})"
