"""The progress of a wait, without I/O: requests to the manager from time to time, and the numbers from its answers."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from qcg.pilotjob.api.client_helpers import to_summary
from qcg.pilotjob.api.waits import WaitForJobs
from qcg.pilotjob.report.run_summary import progress_of

MOST_ASKED = 50
"""Number of names up to which the manager is asked how many iterations of each have ended."""


class Counts(NamedTuple):
    """Numbers of jobs and iterations."""

    done: int
    failed: int
    """Final jobs and iterations without success: FAILED, CANCELED or OMITTED."""
    total: int
    """0 while it is not known."""


class WaitProgress(Protocol):
    """The progress of a wait."""

    def question(self) -> dict[str, Any] | None:
        """The next request to the manager; None if none is needed."""

    def answer(self, data: dict[str, Any]) -> None:
        """Process the answer to `question`."""

    def counts(self) -> Counts:
        """The progress as far as it is known."""


class JobProgress:
    """The progress of jobs. The iterations of a job count each, if it is one of few."""

    def __init__(self, wait: WaitForJobs, names: list[str]) -> None:
        self._wait = wait
        names = list(dict.fromkeys(names))
        self._total = len(names)
        self._asked = names if self._total <= MOST_ASKED else []
        self._iterated: dict[str, Counts] = {}

    def question(self) -> dict[str, Any] | None:
        # In the end, the states of the wait alone would count an iterated job as one.
        left = [name for name in self._asked if not self._iterated or name in self._iterated]
        return {"request": "jobInfo", "jobNames": left} if left else None

    def answer(self, data: dict[str, Any]) -> None:
        found = {}
        for name, entry in data["jobs"].items():
            iterations = entry.get("data", {}).get("iterations")
            if iterations is not None:
                found[name] = Counts(iterations["finished"], iterations["failed"], iterations["total"])
        if not found:
            self._asked = []
        self._iterated |= found

    def counts(self) -> Counts:
        states = dict(self._wait.states)
        iterated = self._iterated
        single = [state for name, state in states.items() if name not in iterated]
        several = [
            # Its last end may be newer than the last answer.
            Counts(known.total, known.failed, known.total) if name in states else known
            for name, known in iterated.items()
        ]
        return Counts(
            len(single) + sum(known.done for known in several),
            sum(state != "SUCCEED" for state in single) + sum(known.failed for known in several),
            self._total - len(iterated) + sum(known.total for known in several),
        )


class RunProgress:
    """The progress of all jobs of a manager."""

    def __init__(self) -> None:
        self._counts = Counts(0, 0, 0)

    def question(self) -> dict[str, Any] | None:
        return {"request": "summary"}

    def answer(self, data: dict[str, Any]) -> None:
        self._counts = Counts(*progress_of(to_summary(data)))

    def counts(self) -> Counts:
        return self._counts
