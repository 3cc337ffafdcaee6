"""Results of benchmarks: values, and whether they reach their target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ENOUGH_ROUNDS = 5
"""Rounds needed for a meaningful median."""


class BenchError(Exception):
    """A benchmark cannot run; the message says why."""


@dataclass(frozen=True)
class Finding:
    """One value of the result table."""

    name: str
    """The benchmark and the value: `noop: limit`."""
    what: str
    """Description of the value."""
    value: float
    unit: str
    bar: str = ""
    """Description of the target; empty without one."""
    reached: bool | None = None
    """None without a target, below full size, or with too few rounds."""
    note: str = ""
    limit: float | None = None
    """The target as a number."""


@dataclass(frozen=True)
class Series:
    """Values for the plot, one bar each; larger is better."""

    title: str
    unit: str
    values: dict[str, float]
    ours: tuple[str, ...] = ()
    """Names that the plot highlights."""


@dataclass
class Result:
    findings: list[Finding] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Measurements that were not possible here, with the reasons."""


@dataclass(frozen=True)
class Setting:
    """Parameters of all benchmarks."""

    directory: Path
    """Directory for all files; each benchmark removes its own."""
    rounds: int
    scale: float
    """1 for the full size; less for a quick test, whose ratios alone are meaningful."""
    parallel: int
    """Processes at a time: the number of usable cores."""
    peers: Sequence[str] | None = None
    """Names of peers to compare with; None for all."""
    cylc: bool = False
    """Whether remote jobs are compared with tasks of cylc-flow, which takes minutes."""

    @property
    def can_judge(self) -> bool:
        """Whether results can be compared with targets."""
        return self.scale == 1 and self.rounds >= ENOUGH_ROUNDS

    def count(self, full: int, least: int = 1) -> int:
        return max(round(full * self.scale), least)


Benchmark = Callable[[Setting], Result]


def at_least(name: str, what: str, value: float, bar: float, unit: str = "", note: str = "") -> Finding:
    return Finding(name, what, value, unit, f"at least {bar:,g}{' ' + unit if unit else ''}", value >= bar, note, bar)


def at_most(name: str, what: str, value: float, bar: float, unit: str = "", note: str = "") -> Finding:
    return Finding(name, what, value, unit, f"at most {bar:,g}{' ' + unit if unit else ''}", value <= bar, note, bar)
