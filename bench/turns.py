"""Measures contestants in turns (A B C, A B C, …), so that other work on the machine affects all of them alike."""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from bench.finding import BenchError

Contestant = Callable[[], float]


@dataclass
class Rate:
    """A contestant measured in jobs a second, with CPU time, which other work on the machine affects less."""

    count: int
    run: Callable[[int], float]
    """Returns the seconds for a number of jobs."""
    cpu: float = 0.0
    jobs: int = 0

    def __call__(self) -> float:
        before = _cpu_of_children()
        seconds = self.run(self.count)
        self.cpu += _cpu_of_children() - before
        self.jobs += self.count
        return self.count / seconds

    @property
    def cost(self) -> str:
        return f"{self.cpu / self.jobs * 1e6:,.0f} µs of CPU a job"


def in_turns(
    contestants: Mapping[str, Contestant], rounds: int, optional: Mapping[str, list[str]] | None = None
) -> dict[str, list[float]]:
    """The values of each contestant in each round. An `optional` contestant that fails is left out, and the reason is
    added to its list."""
    measured: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(1, rounds + 1):
        names = list(measured)
        begin = (number - 1) % len(names)
        for name in [*names[begin:], *names[:begin]]:  # nobody always comes after the same one
            os.sync()  # what the one before has left to be written
            try:
                measured[name].append(contestants[name]())
            except BenchError as why:
                if optional is None or name not in optional:
                    raise
                optional[name].append(str(why))
                del measured[name]
                say(f"round {number} of {rounds}: {why}")
            else:
                say(f"round {number} of {rounds}: {name} {measured[name][-1]:.6g}")
    return measured


def medians(measured: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: median(values) for name, values in measured.items()}


def ratio(measured: Mapping[str, list[float]], one: str, other: str) -> float:
    """The median of `ratios`."""
    return median(ratios(measured, one, other))


def ratios(measured: Mapping[str, list[float]], one: str, other: str) -> list[float]:
    """`one` divided by `other` in each round."""
    return [a / b for a, b in zip(measured[one], measured[other], strict=True)]


def percentile(values: list[float], percent: float) -> float:
    """The smallest value that is not exceeded by this percentage of all values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(len(ordered) * percent / 100) - 1))]


def _cpu_of_children() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def say(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)
