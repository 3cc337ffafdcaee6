"""Answers of a busy manager: `qcg-pm status`, the first page of `qcg-pm jobs`, and the summary that displays read.

The manager has many separate jobs and starts them as fast as it can, while the commands are timed from their start to
their end, with the start of Python. `python -c pass` is the yardstick: the time that any program needs there.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from bench import pilot
from bench.finding import BenchError, Result, Setting, at_most
from bench.limit import fresh
from bench.service import service
from bench.turns import in_turns, percentile
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager

COUNT = 500_000
BATCH = 10_000
SAMPLES = 10
"""Samples in each round."""
BAR = 0.3
YARDSTICK = "start of Python"


def run(setting: Setting) -> Result:
    count, samples = setting.count(COUNT, 1000), setting.count(SAMPLES, 3)
    folder = fresh(setting.directory / "questions")
    seconds: dict[str, list[float]] = {}
    with service(folder, "--report-format", "none") as manager:
        # Fewer jobs must take longer, so that enough of them are left to be started.
        _submit(manager, count, "0" if setting.scale == 1 else "0.2")

        def asked(name: str, ask: Callable[[], float]) -> float:
            found = [ask() for _ in range(samples)]
            seconds.setdefault(name, []).extend(found)
            return median(found)

        status, jobs = ([*pilot.QCG_PM, command, "--path", str(folder)] for command in ("status", "jobs"))

        in_turns(
            {
                "s for python -c pass": lambda: asked(YARDSTICK, partial(_command, sys.executable, "-c", "pass")),
                "s for qcg-pm status": lambda: asked("status", partial(_command, *status)),
                "s for qcg-pm jobs": lambda: asked("jobs", partial(_command, *jobs)),
                "s for a summary": lambda: asked("summary", partial(_summary, manager)),
            },
            setting.rounds,
        )
        left = manager.summary().units.get("QUEUED", 0)
        if not left:
            raise BenchError("all jobs had ended before the last question: the manager was idle")
        manager.finish(cancel=True)
    what = f"with {count:,} separate jobs that are being started"
    python = median(seconds.pop(YARDSTICK))
    note = f"`python -c pass` in turns: {python:.2f} s; {left:,} of them still waited at the end"
    return Result(
        [
            at_most(
                f"questions: {name}",
                f"{'summary by API' if name == 'summary' else f'`qcg-pm {name}`'} {what}, median",
                median(found),
                BAR,
                "s",
                f"95 %: {percentile(found, 95):.2f} s; {note}",
            )
            for name, found in seconds.items()
        ]
    )


def _submit(manager: LocalManager, count: int, seconds: str) -> None:
    for first in range(0, count, BATCH):
        jobs = Jobs()
        for number in range(first, min(first + BATCH, count)):
            jobs.add(name=f"job{number}", exec="/bin/sleep", args=[seconds])
        manager.submit(jobs)


def _command(*command: str) -> float:
    began = time.monotonic()
    done = subprocess.run(
        command,
        env=pilot.ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed:\n{done.stdout}")
    return seconds


def _summary(manager: LocalManager) -> float:
    began = time.monotonic()
    manager.summary()
    return time.monotonic() - began
