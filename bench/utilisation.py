"""A mix of jobs, 100 ms to 10 s, 1 to 8 cores: how long it takes against the same order without any overhead."""

from __future__ import annotations

import heapq
import math
import random
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench import pilot
from bench.finding import Finding, Result, Setting, at_least
from bench.limit import fresh
from bench.turns import in_turns
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.effects import Effect, Launch, Sweep
from qcg.pilotjob.core.events import AttemptEnded, AttemptSwept, HostReported, Schedule, Submit
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.variables import SubmissionContext
from qcg.pilotjob.host.records import Ended

SHORTEST, LONGEST = 0.1, 10.0
MOST_CORES = 8
VIRTUAL = (64, 16, 3000)
REAL = (2, 8, 60)
"""Nodes, cores of each, and jobs. The second case has real processes, which sleep."""


def run(setting: Setting) -> Result:
    folder = setting.directory / "utilisation"
    mixes = {
        "virtual nodes": Mix(folder, *VIRTUAL, setting.scale, "--pretend"),
        "real processes": Mix(folder, *REAL, setting.scale),
    }
    measured = in_turns(mixes, setting.rounds)
    findings: list[Finding] = []
    for name, values in measured.items():
        what = f"utilisation, {mixes[name].jobs:,} jobs on {mixes[name].slots:,} slots, {name}, over no overhead"
        findings.append(at_least(f"utilisation: {name}", what, median(values), 0.97))
    return Result(findings)


class Mix:
    """Jobs of a random mix, another one at each call."""

    def __init__(self, folder: Path, nodes: int, cores: int, jobs: int, scale: float, *options: str) -> None:
        self._folder = folder
        self._nodes = nodes
        self._cores = cores
        self.slots = nodes * cores
        self.jobs = max(round(jobs * scale), 10)
        self._options = options
        self._seed = 0

    def __call__(self) -> float:
        """The time without overhead divided by the measured time: 1 is perfect."""
        self._seed += 1
        jobs = mix(self.jobs, self._seed)
        folder = fresh(self._folder)
        requests = pilot.write_requests(folder / "requests.json", jobs)
        nodes = pilot.nodes(self._nodes, self._cores)
        pilot.run(folder, requests, "--report-format", "json", *nodes, *self._options)
        return ideal_seconds(jobs, self._nodes, self._cores) / _seconds(folder)


def mix(count: int, seed: int) -> list[dict[str, Any]]:
    """A random duration, uniform on a logarithmic scale."""
    chance = random.Random(seed)
    return [
        pilot.job(
            f"job{number}",
            "sleep",
            f"{math.exp(chance.uniform(math.log(SHORTEST), math.log(LONGEST))):.3f}",
            numCores=chance.randint(1, MOST_CORES),
        )
        for number in range(count)
    ]


def ideal_seconds(jobs: list[dict[str, Any]], nodes: int, cores: int) -> float:
    """Seconds from the first start to the last end with the same scheduler and no overhead."""
    specs = [NodeSpec(f"n{number}", tuple(range(cores))) for number in range(nodes)]
    core = Core(specs)
    durations = {job["name"]: float(job["args"][0]) for job in jobs}
    ends: list[tuple[float, str]] = []

    def started(effects: list[Effect], now: float) -> None:
        for effect in effects:
            if isinstance(effect, Launch):
                heapq.heappush(ends, (now + durations[effect.attempt.job.name], effect.attempt.id))
            elif isinstance(effect, Sweep):
                started(core.handle(AttemptSwept(effect.attempt_id, effect.node), now), now)

    core.handle(HostReported([spec.name for spec in specs], []), 0.0)
    core.handle(Submit(parse_jobs(jobs, SubmissionContext(1, datetime(2026, 1, 1), "local", "u"))), 0.0)
    started(core.handle(Schedule(), 0.0), 0.0)
    now = 0.0
    while ends:
        now = ends[0][0]
        while ends and ends[0][0] == now:
            started(core.handle(AttemptEnded(Ended(heapq.heappop(ends)[1], now, 0, "exit", "", 1, 0.0)), now), now)
        started(core.handle(Schedule(), now), now)
    return now


def _seconds(folder: Path) -> float:
    """Seconds from the first start to the last end, from the report."""
    entries = pilot.report(folder)
    times = {
        state: [
            datetime.fromisoformat(step["date"])
            for entry in entries
            for step in entry["history"]
            if step["state"] == state
        ]
        for state in ("EXECUTING", "SUCCEED")
    }
    return (max(times["SUCCEED"]) - min(times["EXECUTING"])).total_seconds()
