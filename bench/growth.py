"""Cost of a job with a short and a long queue: it must depend on the number of distinct requests, not of jobs.

Two managers in separate processes, one with a short queue and one with a long one, take turns: each accepts some more
jobs and lets as many end. CPU time is measured, because other work on the machine does not increase it. In the same way
a long queue of jobs with ten priorities is compared with one of jobs without.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench import pilot, processes
from bench.finding import BenchError, Finding, Result, Setting, at_most
from bench.inside import ROOT, Inside, output_of
from bench.limit import fresh
from bench.turns import Contestant, in_turns, medians, ratio
from qcg.pilotjob.common.gc_tuning import collect_seldom

SHORT, LONG = 10_000, 1_000_000
STEP = 5_000
STEPS, SHORT_STEPS = 5, 15
"""Steps in each round, at full size and below: a single step is so short that other work on the machine would make it
half as long again."""
BATCH = 10_000
NODES, CORES = 64, 16
"""Fewer nodes for fewer queued jobs: agents are sent hundreds of jobs ahead for each node, and until all are sent, that
adds to the cost of the few jobs that end."""
WARM_UP = 1_000
"""Jobs of a chain before the measurement, which fill caches."""
CHAINS = (10_000, 100_000)
LEAST_CHAINS = (1_000, 10_000)
"""In shorter chains the fixed cost of a commit would exceed the cost of the jobs."""
BAR = 1.2
PRIORITIES = 10
PRIORITIES_BAR = 1.2
"""A priority is one more key to read. Jobs start in another order than they came in, so that their records are further
apart in memory and in the journal."""

Queue = tuple[str, int]
"""The shape of the jobs in a queue, and their number."""


def run(setting: Setting) -> Result:
    short, long = [setting.count(size, 100) for size in (SHORT, LONG)]
    growth = f"cost of a job at {long:,} queued over {short:,}"
    priorities = f"cost of a job at {long:,} queued, with {PRIORITIES} priorities over without"
    findings = [
        _compare(setting, "plain", f"{growth}, one core each", ("plain", short), ("plain", long), BAR),
        _compare(setting, "mixed", f"{growth}, mixed sizes and dependencies", ("mixed", short), ("mixed", long), BAR),
        _compare(setting, "priorities", priorities, ("plain", long), ("priorities", long), PRIORITIES_BAR),
    ]
    return Result([*findings, *_chains(setting)])


def _compare(setting: Setting, name: str, what: str, usual: Queue, other: Queue, bar: float) -> Finding:
    """The cost of a job in the other queue over that in the usual one."""
    step, nodes = setting.count(STEP, 50), setting.count(NODES)
    with ExitStack() as stack:
        contestants: dict[str, Contestant] = {
            f"{shape}, {size:,} queued": stack.enter_context(_worker(setting.directory, shape, size, step, nodes))
            for shape, size in (usual, other)
        }
        measured = in_turns(contestants, setting.rounds * (STEPS if setting.scale == 1 else SHORT_STEPS))
    first, second = measured
    found = medians(measured)
    note = f"{found[second] * 1e6:.0f} and {found[first] * 1e6:.0f} µs of CPU"
    return at_most(f"growth: {name}", what, ratio(measured, second, first), bar, note=note)


def _chains(setting: Setting) -> list[Finding]:
    sizes = [setting.count(size, least) for size, least in zip(CHAINS, LEAST_CHAINS, strict=True)]
    measured = in_turns(
        {f"chain of {size:,}": lambda size=size: _chain_cost(setting, size) for size in sizes},  # type: ignore[misc]
        setting.rounds,
    )
    short, long = measured
    what = f"cost of a job in a chain of {sizes[1]:,} over {sizes[0]:,}"
    note = f"{median(measured[long]) * 1e6:.0f} and {median(measured[short]) * 1e6:.0f} µs of CPU"
    return [at_most("growth: chain", what, ratio(measured, long, short), BAR, note=note)]


def _chain_cost(setting: Setting, size: int) -> float:
    """CPU seconds a job, from the submission to the report."""
    return float(output_of("growth", str(fresh(setting.directory / "growth")), "chain", str(size)))


@contextmanager
def _worker(directory: Path, shape: str, queued: int, step: int, nodes: int) -> Iterator[Contestant]:
    """A manager process with a queue of that length. Each call is one step, and returns the CPU seconds a job."""
    folder = fresh(directory / f"growth-{shape}-{queued}")
    command = [*pilot.python("-m", "bench.growth"), str(folder), shape, str(queued)]
    command += ["--step", str(step), "--nodes", str(nodes)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with processes.started(command, processes.AT_ONCE, env=pilot.ENVIRONMENT, cwd=ROOT, **pipes) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        requests, answers = worker.stdin, worker.stdout

        def one_step() -> float:
            requests.write("step\n")
            requests.flush()
            return float(answers.readline())

        if answers.readline() != "ready\n":
            raise BenchError(f"{' '.join(command)} failed")
        one_step()  # the first step has cold caches
        yield one_step
        requests.close()


# -- in a process of its own ----------------------------------------------------------------------------------------


def plain_jobs() -> Iterator[dict[str, Any]]:
    for number in itertools.count():
        yield pilot.job(f"job{number}", "true", stdout=f"out/{number}")


def prioritized_jobs() -> Iterator[dict[str, Any]]:
    for number in itertools.count():
        yield pilot.job(f"job{number}", "true", stdout=f"out/{number}", priority=number % PRIORITIES)


def mixed_jobs() -> Iterator[dict[str, Any]]:
    for number in itertools.count():
        more: dict[str, Any] = {"numCores": 1 + number % 8}
        if number % 11 == 0:
            more = {"numNodes": 1}
        elif number % 7 == 0:
            more = {"numCores": {"min": 1, "max": 4}}
        if number % 3 == 2:
            more["after"] = [f"job{number - 2}", f"job{number - 1}"]
        yield pilot.job(f"job{number}", "true", stdout=f"out/{number}", **more)


SHAPES = {"plain": plain_jobs, "mixed": mixed_jobs, "priorities": prioritized_jobs}


def chained_jobs(count: int) -> list[dict[str, Any]]:
    first = pilot.job("job0", "true")
    return [first, *(pilot.job(f"job{number}", "true", after=f"job{number - 1}") for number in range(1, count))]


async def _serve(directory: Path, shape: str, queued: int, step: int, nodes: int) -> None:
    inside = Inside(directory, nodes, CORES, agents=nodes)
    inside.executor.allowed = 0
    collect_seldom()
    jobs = SHAPES[shape]()
    left = queued
    while left > 0:
        await inside.submit(list(itertools.islice(jobs, min(left, BATCH))))
        left -= BATCH
    print("ready", flush=True)
    for _ in iter(sys.stdin.readline, ""):
        began = time.process_time()
        await inside.submit(list(itertools.islice(jobs, step)))
        await inside.executor.end_jobs(step)
        await inside.engine.commits.store()
        print((time.process_time() - began) / step, flush=True)
    await inside.engine.close()


async def _run_chain(directory: Path, count: int) -> None:
    await _chain_seconds(directory, WARM_UP)
    print(await _chain_seconds(directory, count) / count)


async def _chain_seconds(directory: Path, count: int) -> float:
    inside = Inside(directory, nodes=1, cores=1, agents=1)
    jobs = chained_jobs(count)
    collect_seldom()
    began = time.process_time()
    await inside.submit(jobs)
    await inside.all_done()
    seconds = time.process_time() - began
    await inside.engine.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("shape", choices=[*SHAPES, "chain"])
    parser.add_argument("size", type=int)
    parser.add_argument("--step", type=int, default=STEP)
    parser.add_argument("--nodes", type=int, default=NODES)
    options = parser.parse_args()
    if options.shape == "chain":
        asyncio.run(_run_chain(options.directory, options.size))
    else:
        asyncio.run(_serve(options.directory, options.shape, options.size, options.step, options.nodes))


if __name__ == "__main__":
    main()
