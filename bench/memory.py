"""Memory of a queued job and of a waiting iteration in a real manager, with up to 10 million iterations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.finding import Finding, Result, Setting, at_most
from bench.limit import fresh
from bench.service import service
from bench.turns import in_turns, medians, say
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager

JOBS = 200_000
BATCH = 2_000
ITERATIONS = 10_000_000


def run(setting: Setting) -> Result:
    folder = setting.directory / "memory"
    jobs = setting.count(JOBS, 2 * BATCH)
    accepting: list[float] = []
    measured = in_turns(
        {
            "bytes for a queued job": lambda: _bytes_of_jobs(folder, jobs),
            "bytes for an iteration": lambda: _bytes_of_iterations(folder, accepting),
        },
        setting.rounds,
    )
    found = medians(measured)
    seconds = sorted(accepting)[len(accepting) // 2]
    findings: list[Finding] = [
        at_most("memory: job", f"a queued job, of {jobs:,}", found["bytes for a queued job"], 1024, "bytes"),
        at_most(
            "memory: iteration",
            f"an iteration that has not started, of {ITERATIONS:,}",
            found["bytes for an iteration"],
            64,
            "bytes",
        ),
        at_most("memory: accepted", f"a job of {ITERATIONS:,} iterations is accepted within", seconds, 1.0, "s"),
    ]
    return Result(findings)


def _bytes_of_jobs(folder: Path, count: int) -> float:
    """Growth of the manager's memory for each queued job, after the first thousands."""
    with busy_manager(folder) as manager:
        _submit(manager, 0, BATCH)
        before = resident(manager.qcgpm_process.pid)
        for first in range(BATCH, BATCH + count, BATCH):
            _submit(manager, first, BATCH)
        return (resident(manager.qcgpm_process.pid) - before) / count


def _submit(manager: LocalManager, first: int, count: int) -> None:
    jobs = Jobs()
    for number in range(first, first + count):
        jobs.add(
            name=f"simulation-{number}",
            exec="/usr/bin/simulate",
            args=["--input", f"input/{number}.dat", "--steps", "1000"],
            stdout=f"output/{number}.out",
            stderr=f"output/{number}.err",
            numCores=1 + number % 4,
            wt="10m",
        )
    manager.submit(jobs)


def _bytes_of_iterations(folder: Path, accepting: list[float]) -> float:
    with busy_manager(folder) as manager:
        _submit(manager, 0, BATCH)
        before = resident(manager.qcgpm_process.pid)
        jobs = Jobs().add(name="sweep", exec="/usr/bin/simulate", args=["${it}"], iteration=ITERATIONS)
        began = time.monotonic()
        manager.submit(jobs)
        accepting.append(time.monotonic() - began)
        say(f"accepted within {accepting[-1]:.3f} s")
        return (resident(manager.qcgpm_process.pid) - before) / ITERATIONS


@contextmanager
def busy_manager(folder: Path) -> Iterator[LocalManager]:
    """A manager whose cores are all in use, so that submitted jobs stay queued."""
    with service(fresh(folder), "--nodes", "8", "--pretend") as manager:
        manager.submit(Jobs().add(name="blocker", exec="sleep", args=["1000000"], numCores=8))
        while manager.status("blocker")["jobs"]["blocker"]["data"]["status"] != "EXECUTING":
            time.sleep(0.01)
        yield manager


def resident(pid: int) -> int:
    """Resident memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
