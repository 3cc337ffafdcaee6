"""Measures a manager: start-up time, latency, jobs a second, and overhead between jobs."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from statistics import median

from msgspec import Struct

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import QCGPJMAError, RequestRefusedError, TimeoutElapsed
from qcg.pilotjob.api.job import Jobs

SAMPLES = 50
FIRST_LOOK = 200
"""Jobs of the first measurement, from which the number of jobs of the others is computed."""
MOST_JOBS = 200_000
SLEEP = 0.5
"""Seconds that each job sleeps when the overhead is measured."""
AT_ONCE = 0.05
"""Sleeping jobs end all at the same time, which real jobs seldom do. No more of them run at a time than the manager can
start in this part of their duration, or `A_FEW`."""
A_FEW = 16
PROGRAM = "true"
STILL = 2.0
"""Seconds without a start or an end of a job after which the manager is asked whether it can write its files."""


class CannotWrite(Exception):
    """The measured manager cannot write its files; the message is the reason, such as a full disk."""


def raise_cannot_write(error: QCGPJMAError) -> None:
    """Raise CannotWrite with the reason when an error says that a file could not be written."""
    told = re.search("(?:could not|cannot) be (?:opened|created|written|synced to disk): ([^.;\\n]+)", str(error))
    if told is not None:
        raise CannotWrite(told[1]) from None


class Figures(Struct, frozen=True):
    nodes: int
    cores: int
    start: float
    """Seconds from the start of the manager to the start of its first job."""
    latency: float
    """Seconds from submitting a job to its start, median."""
    latency_99: float
    """The 99th percentile of these."""
    dispatch_jobs: int
    separate: float
    """Separate jobs a second."""
    iterated: float
    """Iterations of one job a second."""
    overhead_jobs: int
    overhead_at_a_time: int
    ideal: float
    """Seconds that the sleeping jobs would take without overhead."""
    real: float
    """Seconds that the sleeping jobs took."""


def measure(start_manager: Callable[[], Manager], seconds: float, echo: Callable[[str], None]) -> Figures:
    """Measure for about `seconds`. `echo` prints the progress."""
    echo("starting a pilot ...")
    began = time.time()
    with start_manager() as manager:
        bench = _Bench(manager)
        start = bench.started("first") - began
        have = manager.resources()
        cores = have["total_cores"]
        echo(f"submitting {SAMPLES} jobs one by one ...")
        latencies = sorted(bench.latency(f"single{number}") for number in range(SAMPLES))
        jobs = bench.jobs_that_take(0.3 * seconds)
        echo(f"running {jobs:,} jobs that do nothing ...")
        separate = bench.rate_of_separate("job", jobs)
        echo("running them once more, as one iterated job ...")
        iterated = bench.rate_of_iterated("iterated", jobs)
        at_a_time = min(cores, max(int(separate * SLEEP * AT_ONCE), A_FEW))
        waves = max(round(0.25 * seconds / SLEEP), 2)
        echo(f"keeping {at_a_time:,} jobs asleep for {waves * SLEEP:g} s ...")
        real = bench.seconds_of_sleepers("wave", waves, at_a_time)
        return Figures(
            nodes=have["total_nodes"],
            cores=cores,
            start=start,
            latency=median(latencies),
            latency_99=latencies[math.ceil(0.99 * SAMPLES) - 1],
            dispatch_jobs=jobs,
            separate=separate,
            iterated=iterated,
            overhead_jobs=waves * at_a_time,
            overhead_at_a_time=at_a_time,
            ideal=waves * SLEEP,
            real=real,
        )


class _Bench:
    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._counts: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._asked = 0

    def started(self, name: str) -> float:
        """Submit a job and return the time of its start."""
        self._seconds(Jobs().add(name=name, exec=PROGRAM))
        history = self._manager.info_parsed(name)[name].history
        return next(at.timestamp() for at, state in history if state == "EXECUTING")

    def latency(self, name: str) -> float:
        began = time.time()
        return self.started(name) - began

    def jobs_that_take(self, seconds: float) -> int:
        rate = self.rate_of_separate("warm-up", FIRST_LOOK)
        return max(min(int(rate * seconds), MOST_JOBS), FIRST_LOOK)

    def rate_of_separate(self, name: str, count: int) -> float:
        jobs = Jobs()
        for number in range(count):
            jobs.add(name=f"{name}{number}", exec=PROGRAM, stdout=f"{name}/{number}")
        return count / self._seconds(jobs)

    def rate_of_iterated(self, name: str, count: int) -> float:
        jobs = Jobs().add(name=name, exec=PROGRAM, stdout=f"{name}/${{it}}", iteration=count)
        return count / self._seconds(jobs)

    def seconds_of_sleepers(self, name: str, waves: int, at_a_time: int) -> float:
        """Seconds for waves of sleeping jobs: each job starts after the job with its number in the wave before."""
        jobs = Jobs()
        for number in range(waves):
            after = [f"{name}{number - 1}:${{it}}"] if number else []
            jobs.add(name=f"{name}{number}", exec="sleep", args=[str(SLEEP)], iteration=at_a_time, after=after)
        return self._seconds(jobs)

    def _seconds(self, jobs: Jobs) -> float:
        """Seconds from submission until all jobs are known to have ended."""
        began = time.monotonic()
        self._submit(jobs)
        while not self._all_ended():
            if not self._progressed():
                # A manager that cannot write waits for space, and refuses new jobs with the reason.
                self._asked += 1
                self._submit(Jobs().add(name=f"asked{self._asked}", exec=PROGRAM))
        took = time.monotonic() - began
        self._check()
        return took

    def _submit(self, jobs: Jobs) -> None:
        try:
            self._manager.submit(jobs)
        except RequestRefusedError as error:
            raise_cannot_write(error)
            raise

    def _check(self) -> None:
        """Raise CannotWrite when a job failed: these jobs only fail when their output files cannot be created."""
        if self._manager.system_status()["JobStats"]["FailedJobs"]:
            failed = next(name for name, job in self._manager.list().items() if job["status"] == "FAILED")
            raise CannotWrite(self._manager.why(failed)["jobs"][failed]["data"]["sentence"])

    def _all_ended(self) -> bool:
        try:
            self._manager.wait4all(STILL)
        except TimeoutElapsed:
            return False
        return True

    def _progressed(self) -> bool:
        """Whether jobs have started or ended since the last call."""
        status = self._manager.system_status()
        before, self._counts = self._counts, (status["JobStats"], status["IterationStats"])
        return self._counts != before
