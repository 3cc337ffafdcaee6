"""The manager alone: 1,000 virtual nodes of 128 cores, through submit, schedule, launch, end and report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench import inside, pilot
from bench.finding import Finding, Result, Series, Setting, at_least
from bench.limit import fresh
from bench.turns import Rate, in_turns, medians

NODES, CORES = 1000, 128
COUNT = 100_000
BAR = 20_000


def run(setting: Setting) -> Result:
    count = setting.count(COUNT, 1000)
    folder = setting.directory / "manager"
    rates: dict[str, Rate | Inside] = {
        "one agent, real sockets, separate jobs": Rate(count, _command(folder, pilot.separate)),
        "one agent, real sockets, one iterated job": Rate(count, _command(folder, pilot.iterated)),
        "one agent, within the process": Inside(folder, count, 1),
        "one agent, within the process, one iterated job": Inside(folder, count, 1, iterated=True),
        "an agent on each node, within the process": Inside(folder, count, NODES),
    }
    found = medians(in_turns(rates, setting.rounds))
    findings: list[Finding] = [
        at_least(f"manager: {name}", f"manager alone, {name}", value, BAR, "jobs/s", rates[name].cost)
        for name, value in found.items()
    ]
    return Result(findings, [Series("The manager alone", "jobs/s", found, tuple(found))])


def _command(folder: Path, make: Callable[..., list[dict[str, Any]]]) -> Callable[[int], float]:
    """`qcg-pm run` with simulated hosts, measured from the first to the last line of its log."""

    def seconds(count: int) -> float:
        directory = fresh(folder)
        requests = pilot.write_requests(directory / "requests.json", make(count, "true"))
        pilot.run(directory, requests, "--pretend", *pilot.nodes(NODES, CORES))
        return pilot.logged_seconds(directory)

    return seconds


class Inside:
    """A contestant without sockets; its value is jobs a second."""

    def __init__(self, folder: Path, count: int, agents: int, *, iterated: bool = False) -> None:
        self._folder = folder
        self._count = count
        self._agents = agents
        self._iterated = iterated
        self._cpu: list[float] = []

    def __call__(self) -> float:
        directory = fresh(self._folder)
        cost = inside.measure(
            directory, jobs=self._count, nodes=NODES, cores=CORES, agents=self._agents, iterated=self._iterated
        )
        self._cpu.append(cost.cpu)
        return self._count / cost.seconds

    @property
    def cost(self) -> str:
        """CPU time a job, without the start of Python and the creation of the request."""
        return f"{median(self._cpu) / self._count * 1e6:,.0f} µs of CPU a job"
