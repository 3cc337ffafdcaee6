"""Measuring in turns: A B C, A B C, … so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from statistics import median

Contestant = Callable[[], float]


def in_turns(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """What each measured in each round."""
    measured: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(1, rounds + 1):
        for name, contestant in contestants.items():
            measured[name].append(contestant())
            say(f"round {number} of {rounds}: {name} {measured[name][-1]:.6g}")
    return measured


def medians(measured: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: median(values) for name, values in measured.items()}


def ratio(measured: Mapping[str, list[float]], one: str, other: str) -> float:
    """The median over the rounds of `one` over `other` in the same round."""
    return median(a / b for a, b in zip(measured[one], measured[other], strict=True))


def percentile(values: list[float], percent: float) -> float:
    """The smallest value that so many per cent of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(len(ordered) * percent / 100) - 1))]


def say(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)
