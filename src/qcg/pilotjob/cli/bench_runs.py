"""What a pilot does here: how soon it starts jobs, how many a second, and how much time is lost between them."""

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
"""Jobs that tell how many can be run in the time that there is."""
MOST_JOBS = 200_000
SLEEP = 0.5
"""Seconds that jobs sleep to see what is lost between them."""
AT_ONCE = 0.05
"""They end all at once, as jobs seldom do: no more of them at a time than can be started in this part of their time,"""
A_FEW = 16
"""or than these."""
PROGRAM = "true"
STILL = 2.0
"""Seconds without a start or an end before the pilot is asked whether it can write: no job takes as long."""


class CannotWrite(Exception):
    """The pilot that is measured has no room for its files, or cannot write them for another reason, which this is."""


def raise_cannot_write(error: QCGPJMAError) -> None:
    """Where an error says so. What else it says is advice for runs that go on once there is room."""
    told = re.search("(?:could not|cannot) be (?:opened|created|written|synced to disk): ([^.;\\n]+)", str(error))
    if told is not None:
        raise CannotWrite(told[1]) from None


class Figures(Struct, frozen=True):
    nodes: int
    cores: int
    start: float
    """Seconds from the start of the service to that of its first job."""
    latency: float
    """Seconds from submitting a job to its start, median."""
    latency_99: float
    """What 99 of 100 do not exceed."""
    dispatch_jobs: int
    separate: float
    """Jobs a second, each a job of its own."""
    iterated: float
    """The same as one job with iterations."""
    overhead_jobs: int
    overhead_at_a_time: int
    ideal: float
    """Seconds that jobs which only sleep take without overhead."""
    real: float
    """Seconds that they took."""


def measure(start_manager: Callable[[], Manager], seconds: float, say: Callable[[str], None]) -> Figures:
    """In about so many seconds; `say` is told what is going on."""
    say("starting a pilot ...")
    began = time.time()
    with start_manager() as manager:
        bench = _Bench(manager)
        start = bench.started("first") - began
        have = manager.resources()
        cores = have["total_cores"]
        say(f"submitting {SAMPLES} jobs one by one ...")
        latencies = sorted(bench.latency(f"single{number}") for number in range(SAMPLES))
        jobs = bench.jobs_that_take(0.3 * seconds)
        say(f"running {jobs:,} jobs that do nothing ...")
        separate = bench.rate_of_separate("job", jobs)
        say("running them once more, as one iterated job ...")
        iterated = bench.rate_of_iterated("iterated", jobs)
        at_a_time = min(cores, max(int(separate * SLEEP * AT_ONCE), A_FEW))
        waves = max(round(0.25 * seconds / SLEEP), 2)
        say(f"keeping {at_a_time:,} jobs asleep for {waves * SLEEP:g} s ...")
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
        """When a job that is submitted now starts."""
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
        """Each one follows the one of its number in the wave before."""
        jobs = Jobs()
        for number in range(waves):
            after = [f"{name}{number - 1}:${{it}}"] if number else []
            jobs.add(name=f"{name}{number}", exec="sleep", args=[str(SLEEP)], iteration=at_a_time, after=after)
        return self._seconds(jobs)

    def _seconds(self, jobs: Jobs) -> float:
        """From submission until it is known that all have ended."""
        began = time.monotonic()
        self._submit(jobs)
        while not self._all_end():
            if not self._move():
                # A pilot that cannot write waits for room, and says so to whoever wants something new of it.
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
        """What these jobs do cannot fail: only that their files cannot be made."""
        if self._manager.system_status()["JobStats"]["FailedJobs"]:
            failed = next(name for name, job in self._manager.list().items() if job["status"] == "FAILED")
            raise CannotWrite(self._manager.why(failed)["jobs"][failed]["data"]["sentence"])

    def _all_end(self) -> bool:
        try:
            self._manager.wait4all(STILL)
        except TimeoutElapsed:
            return False
        return True

    def _move(self) -> bool:
        """Whether jobs have started or ended since this was asked last."""
        status = self._manager.system_status()
        before, self._counts = self._counts, (status["JobStats"], status["IterationStats"])
        return self._counts != before
