"""The limits of jobs on one host: wall times and memory."""

import time
from typing import Callable, Dict, List, NamedTuple, Optional

from qcg.pilotjob.host import process_tree
from qcg.pilotjob.host.job import ActiveJob
from qcg.pilotjob.host.memory_limits import MemoryLimits, may_be_out_of_memory
from qcg.pilotjob.host.records import EndReason, Launch
from qcg.pilotjob.host.walltimes import WallTimes


class Exceeded(NamedTuple):
    """A job that has to be ended, and why."""

    job: ActiveJob
    reason: str
    message: str
    grace: float


class JobLimits:
    def __init__(self, grace: float, log: Callable[[str], None]) -> None:
        """`grace`: seconds between SIGTERM and SIGKILL for jobs whose wall time is over."""
        self._grace = grace
        self.wall_times = WallTimes()
        self.memory = MemoryLimits(log)

    def begin(self, launch: Launch, job: ActiveJob, jobs: Dict[str, ActiveJob]) -> None:
        """Enforce the limits of a job that was just started. `jobs`: all jobs of the host, by id."""
        if launch.wall_time is not None:
            began = time.monotonic() - process_tree.seconds_since(job.start.until)
            self.wall_times.begin(job.id, began, launch.wall_time, jobs)
        if launch.memory:
            job.memory_limit = launch.memory << 10
            self.memory.begin(job)

    def next_check(self, jobs: Dict[str, ActiveJob]) -> Optional[float]:
        """When `check` has something to do next, in monotonic seconds."""
        times = [at for at in (self.wall_times.next(jobs), self.memory.next_measurement) if at is not None]
        return min(times) if times else None

    def is_due(self, now: float) -> bool:
        next_measurement = self.memory.next_measurement
        return self.wall_times.has_passed(now) or (next_measurement is not None and next_measurement <= now)

    def check(self, now: float, jobs: Dict[str, ActiveJob]) -> List[Exceeded]:
        """The jobs that have exceeded a limit."""
        found = []
        for id, wall_time in self.wall_times.take(now):
            if id in jobs:
                message = "The job exceeded its wall time of %g s." % wall_time
                found.append(Exceeded(jobs[id], EndReason.TIMEOUT, message, self._grace))
        if self.memory.next_measurement is not None and self.memory.next_measurement <= now:
            # Without a grace period, in which it could take all memory of its node.
            found += [Exceeded(job, EndReason.MEMORY, text, 0.0) for job, text in self.memory.measure(now, jobs)]
        return found

    def ended(self, job: ActiveJob) -> None:
        """Complete the record of a job that has no processes any more."""
        if job.memory_limit or may_be_out_of_memory(job):
            self.memory.ended(job)

    def close(self) -> None:
        """To be called when no process of a job is left."""
        self.memory.close()
