"""Generated workload traces: the same jobs for the same seed.

- `mixed` follows the model of Lublin and Feitelson (2003) for rigid jobs: sizes are mostly powers of two, on a
  logarithmic scale in two ranges; the logarithm of the run time is drawn from one of two gamma distributions, and wide
  jobs are more often long; arrivals have a daily cycle. Users request one to three times the run time.
- `narrow` has short jobs with 1 to 4 cores and, once in 150 jobs, one with three quarters of all cores. Wall times are
  20 % above the run time.
- `estimates` is a `mixed` trace at full load with bad wall times: users request 1 h, 4 h, 12 h or 24 h, up to twenty
  times as much as they need.

Arrivals are spread so that all jobs together ask for the part `load` of the cores.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from bench.swf import TraceJob

DAY = 86_400.0
ROUNDED = 300.0
"""Seconds to which users round wall times up."""
CLASSES = (3_600.0, 14_400.0, 43_200.0, 86_400.0)


@dataclass(frozen=True)
class Trace:
    """A workload, and the machine it is for."""

    name: str
    cores: int
    jobs: list[TraceJob]

    @property
    def wide(self) -> int:
        """Number of cores from which on a job counts as wide."""
        return self.cores // 2


def generate(name: str, cores: int, count: int, seed: int = 1) -> Trace:
    """One of the three traces."""
    make, load, daily = GENERATORS[name]
    chance = random.Random(f"{name} {seed}")
    drawn = [make(chance, cores) for _ in range(count)]
    span = sum(seconds * size for seconds, size, _ in drawn) / (cores * load)
    jobs = []
    for number, at in enumerate(sorted(_arrival(chance, span, daily) for _ in range(count)), 1):
        seconds, size, limit = drawn[number - 1]
        jobs.append(TraceJob(number, float(round(at)), seconds, size, limit))
    return Trace(name, cores, jobs)


def _arrival(chance: random.Random, span: float, daily: float) -> float:
    """A moment within the span, more likely at noon than at midnight by the weight `daily`."""
    while True:
        at = chance.random() * span
        if chance.random() * (1 + daily) <= 1 - daily * math.cos(2 * math.pi * at / DAY):
            return at


def _mixed(chance: random.Random, cores: int) -> tuple[float, int, float]:
    size = _size(chance, cores)
    seconds = _seconds(chance, size)
    return seconds, size, _rounded_up(seconds * chance.uniform(1.0, 3.0))


def _narrow(chance: random.Random, cores: int) -> tuple[float, int, float]:
    if chance.random() < 1 / 150:
        size, seconds = cores * 3 // 4, chance.uniform(600, 1_800)
    else:
        size, seconds = chance.randint(1, 4), chance.uniform(30, 600)
    return float(round(seconds)), size, float(math.ceil(1.2 * seconds))


def _estimates(chance: random.Random, cores: int) -> tuple[float, int, float]:
    size = _size(chance, cores)
    seconds = _seconds(chance, size)
    wanted = seconds * math.exp(chance.uniform(0.0, math.log(20.0)))
    return seconds, size, next((limit for limit in CLASSES if limit >= min(wanted, CLASSES[-1])), CLASSES[-1])


def _size(chance: random.Random, cores: int) -> int:
    """Serial with 24 %; otherwise a power of two in three of four cases, most often below the middle of the scale."""
    if chance.random() < 0.24:
        return 1
    largest = math.log2(cores)
    middle = largest - 2.5
    exponent = chance.uniform(0.8, middle) if chance.random() < 0.86 else chance.uniform(middle, largest)
    size = 2 ** round(exponent) if chance.random() < 0.75 else round(2**exponent)
    return max(1, min(size, cores))


def _seconds(chance: random.Random, size: int) -> float:
    """Two gamma distributions of the logarithm: short jobs, and jobs of hours, which wide jobs more often are."""
    short = max(0.0, min(-0.0054 * size + 0.78, 1.0))
    logarithm = chance.gammavariate(4.2, 0.94) if chance.random() < short else chance.gammavariate(312.0, 0.03)
    return float(max(1, min(round(math.exp(logarithm)), round(DAY))))


def _rounded_up(seconds: float) -> float:
    return max(math.ceil(seconds / ROUNDED), 1) * ROUNDED


Draw = Callable[[random.Random, int], tuple[float, int, float]]
GENERATORS: dict[str, tuple[Draw, float, float]] = {
    "mixed": (_mixed, 0.85, 0.8),
    "narrow": (_narrow, 0.9, 0.0),
    "estimates": (_estimates, 1.0, 0.8),
}
"""How to draw a job (seconds, cores, wall time), the part of the cores that all jobs together ask for, and by how much
more jobs arrive at noon than on average."""
