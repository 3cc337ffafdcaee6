"""The manager alone: 1,000 pretended nodes of 128 cores, through submit, schedule, launch, end and report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench import inside, pilot
from bench.finding import Finding, Result, Series, Setting, at_least
from bench.limit import fresh
from bench.turns import in_turns, medians

NODES, CORES = 1000, 128
COUNT = 100_000
BAR = 20_000

ONE_AGENT = "one agent, real sockets"
INSIDE_ONE = "one agent, within the process"
INSIDE_MANY = "an agent on each node, within the process"


def run(setting: Setting) -> Result:
    count = setting.count(COUNT, 1000)
    folder = setting.directory / "manager"
    measured = in_turns(
        {
            f"{ONE_AGENT}: {jobs}": partial(_command_rate, folder, count, make)
            for jobs, make in (("separate jobs", pilot.separate), ("one iterated job", pilot.iterated))
        }
        | {
            INSIDE_ONE: partial(inside_rate, folder, count, 1),
            INSIDE_MANY: partial(inside_rate, folder, count, NODES),
        },
        setting.rounds,
    )
    found = medians(measured)
    findings: list[Finding] = [
        at_least(f"manager.{name}", f"manager alone, {name}", value, BAR, "jobs/s")
        for name, value in found.items()
    ]
    return Result(findings, [Series("The manager alone", "jobs/s", found)])


def _command_rate(folder: Path, count: int, make: Callable[..., list[dict[str, Any]]]) -> float:
    """`qcg-pm run` with hosts that answer at once; the time of a run of one job is not counted."""
    options = ["--pretend", *pilot.nodes(NODES, CORES)]
    seconds = [
        pilot.run(folder, pilot.write_requests(fresh(folder) / "requests.json", make(jobs, "true")), *options)
        for jobs in (1, count)
    ]
    return (count - 1) / (seconds[1] - seconds[0])


def inside_rate(folder: Path, count: int, agents: int) -> float:
    """In a process of its own, so that each begins with the same memory."""
    return count / inside.measure(fresh(folder), jobs=count, nodes=NODES, cores=CORES, agents=agents).seconds
