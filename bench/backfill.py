"""Order of jobs on workload traces: utilisation and the wait of wide jobs, with reservations and without.

The core of the manager runs with a simulated clock on three generated traces, against the rule of patience alone and
against EASY backfill as published. `python -m bench.backfill TRACE.swf` does the same with a trace of the Parallel
Workloads Archive.
"""

from __future__ import annotations

import heapq
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from bench import easy, swf
from bench.finding import Finding, Result, Setting
from bench.page import DOCS, table
from bench.traces import GENERATORS, Trace, generate
from qcg.pilotjob.core import forecast
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.effects import Effect, Launch, Sweep, WakeAt
from qcg.pilotjob.core.events import AttemptEnded, AttemptStarted, AttemptSwept, Event, HostReported, Schedule, Submit
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import Amount, Execution, JobDescription, ResourceRequest
from qcg.pilotjob.host.records import Ended, Started

NODES, CORES_PER_NODE = 16, 16
JOBS = 3_000
PATIENCE = 600.0
"""The default of `--patience`."""
EPOCH = 1_000_000.0
"""Start of the simulated clock: an attempt that started at 0 would not have started."""
PAGE = DOCS / "scheduling.md"
BEGIN = "<!-- backfill: written by make bench -->"
END = "<!-- end of backfill -->"

Policy = Callable[[Trace], dict[int, float]]


@dataclass(frozen=True)
class Outcome:
    """What a policy makes of a trace."""

    utilisation: float
    """Busy cores from the first submission to the last end, in per cent."""
    wide_wait: float
    """Mean wait of wide jobs in minutes."""
    longest_wide_wait: float
    other_wait: float
    """Mean wait of all other jobs in minutes."""


def run(setting: Setting) -> Result:
    cores, count = NODES * CORES_PER_NODE, setting.count(JOBS, 30)
    traces = [generate(name, cores, count) for name in GENERATORS]
    outcomes = {trace.name: compare(trace) for trace in traces}
    if setting.scale == 1:
        write(outcomes)
    findings = []
    for trace, by_policy in outcomes.items():
        for policy, outcome in by_policy.items():
            name, what = f"backfill: {trace}, {policy}", f"trace `{trace}`, {policy}"
            findings.append(Finding(f"{name}, utilisation", f"utilisation, {what}", outcome.utilisation, "%"))
            findings.append(Finding(f"{name}, wide", f"mean wait of wide jobs, {what}", outcome.wide_wait, "min"))
    return Result(findings)


def compare(trace: Trace) -> dict[str, Outcome]:
    """The outcome of each policy."""
    return {name: outcome(trace, policy(trace)) for name, policy in POLICIES.items()}


def outcome(trace: Trace, starts: dict[int, float]) -> Outcome:
    ends = [starts[job.number] + job.seconds for job in trace.jobs]
    busy = sum(job.seconds * job.cores for job in trace.jobs)
    span = max(ends) - trace.jobs[0].submitted
    wide = [(starts[job.number] - job.submitted) / 60 for job in trace.jobs if job.cores >= trace.wide]
    others = [(starts[job.number] - job.submitted) / 60 for job in trace.jobs if job.cores < trace.wide]
    return Outcome(
        100 * busy / (span * trace.cores), mean(wide or [0.0]), max(wide, default=0.0), mean(others or [0.0])
    )


class Simulation:
    """The core with a simulated clock: jobs take as long as in the trace."""

    def __init__(self, trace: Trace, *, limits: bool, patience: float = PATIENCE) -> None:
        """`limits`: whether jobs have the wall times of the trace."""
        specs = [
            NodeSpec(f"n{number}", tuple(range(CORES_PER_NODE))) for number in range(-(-trace.cores // CORES_PER_NODE))
        ]
        self._core = Core(specs, patience=patience)
        self._jobs = {f"job{job.number}": job for job in trace.jobs}
        self._arrivals = list(reversed(trace.jobs))
        self._limits = limits
        self._ends: list[tuple[float, str, Attempt]] = []
        self._wake: float | None = None
        self._now = EPOCH
        self.starts: dict[int, float] = {}
        self._handle(HostReported([spec.name for spec in specs], []))

    def run(self) -> dict[int, float]:
        """The start of each job, by its number."""
        while self._arrivals or self._ends:
            self._now = min(self._moments())
            if self._wake is not None and self._wake <= self._now:
                self._wake = None
            while self._ends and self._ends[0][0] <= self._now:
                _, _, attempt = heapq.heappop(self._ends)
                self._handle(AttemptEnded(Ended(attempt.id, self._now, 0, "exit", "", 7, attempt.started)))
            while self._arrivals and EPOCH + self._arrivals[-1].submitted <= self._now:
                self._submit(self._arrivals.pop())
            self._handle(Schedule())
        return self.starts

    def _moments(self) -> Iterator[float]:
        if self._arrivals:
            yield EPOCH + self._arrivals[-1].submitted
        if self._ends:
            yield self._ends[0][0]
        if self._wake is not None:
            yield self._wake

    def _submit(self, job: swf.TraceJob) -> None:
        request = ResourceRequest(Amount(job.cores, job.cores))
        wall_time = job.limit if self._limits and job.limit else None
        self._handle(Submit([JobDescription(f"job{job.number}", Execution(exec="true"), request, wall_time=wall_time)]))

    def _handle(self, event: Event) -> None:
        self._apply(self._core.handle(event, self._now))

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Launch):
                attempt = effect.attempt
                job = self._jobs[attempt.job.name]
                self.starts[job.number] = self._now - EPOCH
                heapq.heappush(self._ends, (self._now + job.seconds, attempt.id, attempt))
                grant = [(part.node, part.cores, part.gpus) for part in attempt.grant.parts]
                self._handle(AttemptStarted(Started(attempt.id, 7, self._now, grant)))
            elif isinstance(effect, Sweep):
                self._handle(AttemptSwept(effect.attempt_id, effect.node))
            elif isinstance(effect, WakeAt):
                self._wake = effect.at


@contextmanager
def nothing_learned() -> Iterator[None]:
    """Let the core learn no durations: without wall times, the rule of patience is all there is."""
    before = forecast.ENOUGH_ENDED
    forecast.ENOUGH_ENDED = sys.maxsize
    try:
        yield
    finally:
        forecast.ENOUGH_ENDED = before


def _patience(trace: Trace) -> dict[int, float]:
    with nothing_learned():
        return Simulation(trace, limits=False).run()


POLICIES: dict[str, Policy] = {
    "patience alone": _patience,
    "reservations": lambda trace: Simulation(trace, limits=True).run(),
    "reservations, durations learned": lambda trace: Simulation(trace, limits=False).run(),
    "EASY as published": easy.starts,
}


def write(outcomes: dict[str, dict[str, Outcome]]) -> None:
    """Write the table into the page on scheduling, between its markers."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{as_table(outcomes)}\n\n{END}{after}")


def as_table(outcomes: dict[str, dict[str, Outcome]]) -> str:
    head = ["trace", "rule", "utilisation", "wait of wide jobs: mean", "longest", "mean wait of others"]
    rows = [
        [
            f"`{trace}`",
            policy,
            f"{found.utilisation:.1f} %",
            f"{found.wide_wait:,.0f} min",
            f"{found.longest_wide_wait:,.0f} min",
            f"{found.other_wait:,.1f} min",
        ]
        for trace, by_policy in outcomes.items()
        for policy, found in by_policy.items()
    ]
    return table(head, rows)


def trace_of(path: Path) -> Trace:
    """A trace of the archive, on as many cores as its header names."""
    jobs = [job._replace(seconds=min(job.seconds, job.limit)) if job.limit else job for job in swf.read(path)]
    if not jobs:
        raise swf.TraceError(f"{path} has no job that ran")
    named = re.search(r"^;\s*MaxProcs:\s*(\d+)", path.read_text(errors="replace"), re.MULTILINE)
    cores = max([int(named.group(1)) if named else 0, *[job.cores for job in jobs]])
    return Trace(path.stem, cores, [job if job.limit else job._replace(limit=job.seconds) for job in jobs])


def main(arguments: list[str]) -> int:
    if not arguments:
        print("usage: python -m bench.backfill TRACE.swf ...", file=sys.stderr)
        return 2
    try:
        print(as_table({path: compare(trace_of(Path(path))) for path in arguments}))
    except (swf.TraceError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
