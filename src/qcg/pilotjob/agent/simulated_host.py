"""A simulated job host, which starts no processes: jobs succeed at once, and `sleep SECONDS` after that time.

It serves to measure the cost of everything else (manager, scheduler, journal, report and messages) with any number of
virtual nodes. Its ledger has no records of starts that are about to happen, because there are no processes to find.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from contextlib import suppress

from qcg.pilotjob.host.job import ActiveJob
from qcg.pilotjob.host.jobhost import JobHost
from qcg.pilotjob.host.ledger import Ledger, OpenStart
from qcg.pilotjob.host.records import STEP_ID, Ended, EndReason, Launch

NO_PROCESS = -1
STARTS_PER_PROCESS_START = 16
"""Number of simulated starts that take as long as the start of one process."""


class SimulatedHost(JobHost):
    def __init__(
        self,
        ledger: Ledger,
        name: str,
        files: str,
        log: Callable[[str], None] = lambda line: None,
        verdict_delay: float = 0.0,
    ) -> None:
        self._ends: list[tuple[float, str]] = []
        """Heap of the ends of sleeping jobs, in monotonic seconds."""
        super().__init__(ledger, name, files, log=log, verdict_delay=verdict_delay)

    def advance(self, limit: int = 16) -> bool:
        return super().advance(limit * STARTS_PER_PROCESS_START)

    def due(self, now: float) -> None:
        super().due(now)
        while self._ends and self._ends[0][0] <= now:
            job = self._jobs.get(heapq.heappop(self._ends)[1])
            if job is not None:
                self._succeed(job)

    def next_deadline(self) -> float | None:
        deadline = super().next_deadline()
        if not self._ends:
            return deadline
        return self._ends[0][0] if deadline is None else min(self._ends[0][0], deadline)

    def _record_starting(self, launch: Launch) -> bool:
        return not self._ledger.write_error

    def _start(self, launch: Launch) -> None:
        now = time.time()
        seconds = _sleep_seconds(launch.argv)
        if not seconds:
            self._ledger.ended(Ended(launch.id, now, 0, EndReason.EXIT, "", NO_PROCESS, now, launch.grant))
            self._start_next_of_lane(launch.id)
            return
        start = OpenStart(launch.env.get(STEP_ID, ""), NO_PROCESS, now, launch.grant, 0, 0)
        job = self._jobs[launch.id] = ActiveJob(launch.id, start, -1, has_files=False)
        self._ledger.started(job.id, start)
        began = time.monotonic()
        heapq.heappush(self._ends, (began + seconds, job.id))
        if launch.wall_time is not None:
            self._limits.wall_times.begin(job.id, began, launch.wall_time, self._jobs)

    def _succeed(self, job: ActiveJob) -> None:
        job.exit_code = 0
        self._over(job)


def _sleep_seconds(argv: list[str]) -> float:
    if len(argv) == 2 and argv[0] == "sleep":
        with suppress(ValueError):
            seconds = float(argv[1])
            return seconds if seconds > 0 else 0.0  # also for `nan`
    return 0.0
