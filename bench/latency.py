"""Latency of an idle manager: start of a job, of its dependent, and of the manager itself."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from statistics import median

from bench import pilot
from bench.finding import Result, Setting, at_most
from bench.limit import build, fresh
from bench.service import service
from bench.turns import in_turns, percentile, say
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager

SAMPLES = 100
"""Samples in each round."""


def run(setting: Setting) -> Result:
    stamp = str(build("stamp", setting.directory / "bin"))
    folder = fresh(setting.directory / "latency")
    samples = setting.count(SAMPLES, 10)
    submitted: list[float] = []
    followed: list[float] = []
    with service(folder) as manager:
        watch = Watch(manager, folder, stamp)
        watch.after_submission()  # then the agent is connected, and all modules are imported

        def submissions() -> float:
            submitted.extend(watch.after_submission() for _ in range(samples))
            return median(submitted[-samples:])

        def dependents() -> float:
            followed.extend(watch.after_the_job_before() for _ in range(samples))
            return median(followed[-samples:])

        measured = in_turns(
            {
                "ms from submit to start": submissions,
                "ms from end to start": dependents,
                "ms for a bare process": lambda: median(_bare(stamp) for _ in range(samples)),
            },
            setting.rounds,
        )
    _start(setting.directory / "start", stamp)  # compiles modules to bytecode
    starts = [_start(setting.directory / "start", stamp) for _ in range(setting.rounds)]
    say(f"seconds from the command to the first job: {', '.join(f'{seconds:.3f}' for seconds in starts)}")
    bare = median(measured["ms for a bare process"])
    note = f"a bare process of Python's: {bare:.2f} ms"
    what = "idle pilot, submit by API to process start"
    return Result(
        [
            at_most("latency: median", f"{what}, median", median(submitted), 5, "ms", note),
            at_most("latency: 99 %", f"{what}, 99th percentile", percentile(submitted, 99), 20, "ms"),
            at_most("latency: dependent", "a job's end to the start of its dependent", median(followed), 5, "ms"),
            at_most("latency: start", "start of the service to first job running", median(starts), 0.5, "s"),
        ]
    )


class Watch:
    """Runs jobs that print the time of their start."""

    def __init__(self, manager: LocalManager, folder: Path, stamp: str) -> None:
        self._manager = manager
        self._folder = folder
        self._stamp = stamp
        self._number = 0

    def after_submission(self) -> float:
        """Milliseconds from the submission to the start of a job."""
        name = self._next()
        jobs = Jobs().add(name=name, exec=self._stamp, stdout=name)
        began = time.time()
        self._manager.submit(jobs)
        self._manager.wait4(name)
        return 1000 * (self._start_time(name) - began)

    def after_the_job_before(self) -> float:
        """Milliseconds from the end of a job to the start of its dependent."""
        first, second = self._next(), self._next()
        jobs = Jobs().add(name=first, exec=self._stamp, stdout=first)
        jobs.add(name=second, exec=self._stamp, stdout=second, after=first)
        self._manager.submit(jobs)
        self._manager.wait4(second)
        return 1000 * (self._start_time(second) - self._start_time(first))

    def _next(self) -> str:
        self._number += 1
        return f"stamp{self._number}"

    def _start_time(self, name: str) -> float:
        return float((self._folder / name).read_text())


def _bare(stamp: str) -> float:
    """Milliseconds to start the same program directly."""
    began = time.time()
    printed = subprocess.run([stamp], stdout=subprocess.PIPE, check=True).stdout
    return 1000 * (float(printed) - began)


def _start(folder: Path, stamp: str) -> float:
    """Seconds from the start of the command to the start of its first job."""
    directory = fresh(folder)
    requests = pilot.write_requests(directory / "requests.json", [pilot.job("first", stamp, stdout="first")])
    began = time.time()
    pilot.run(directory, requests)
    return float((directory / "first").read_text()) - began
