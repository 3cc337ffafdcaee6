"""What a benchmark finds: figures, and for each bar whether it is reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ENOUGH_ROUNDS = 5
"""For a median that says something."""


class BenchError(Exception):
    """Something cannot be measured; the message says why."""


@dataclass(frozen=True)
class Finding:
    """One figure of the table."""

    name: str
    """Of the benchmark, and of what in it: `noop.limit`."""
    what: str
    """In words."""
    value: float
    unit: str
    bar: str = ""
    """In words; empty where the figure is only told."""
    reached: bool | None = None
    """Also None where it was measured at less than full size, or too seldom, which says nothing of bars."""
    note: str = ""
    limit: float | None = None
    """The bar as a number."""


@dataclass(frozen=True)
class Series:
    """For the plot: one bar each, larger is better."""

    title: str
    unit: str
    values: dict[str, float]
    ours: tuple[str, ...] = ()
    """Those to be seen first."""


@dataclass
class Result:
    findings: list[Finding] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What could not be measured here, and why."""


@dataclass(frozen=True)
class Setting:
    """How to measure."""

    directory: Path
    """For everything that is made; emptied by whoever uses it."""
    rounds: int
    scale: float
    """1 for the real thing; a part of it for a quick look, which is good for ratios and for nothing else."""
    parallel: int
    """Processes at a time: as many as this machine has cores for them."""
    peers: Sequence[str] | None = None
    """Those to measure against; None for all."""

    @property
    def can_judge(self) -> bool:
        """Whether bars can be said to be reached or missed."""
        return self.scale == 1 and self.rounds >= ENOUGH_ROUNDS

    def count(self, full: int, least: int = 1) -> int:
        return max(round(full * self.scale), least)


Benchmark = Callable[[Setting], Result]


def at_least(name: str, what: str, value: float, bar: float, unit: str = "", note: str = "") -> Finding:
    return Finding(name, what, value, unit, f"at least {bar:,g}{' ' + unit if unit else ''}", value >= bar, note, bar)


def at_most(name: str, what: str, value: float, bar: float, unit: str = "", note: str = "") -> Finding:
    return Finding(name, what, value, unit, f"at most {bar:,g}{' ' + unit if unit else ''}", value <= bar, note, bar)
