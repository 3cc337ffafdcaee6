"""The history of a run in bins: core-seconds in use, starts, ends and failures."""

from __future__ import annotations

import math
from typing import TypeVar

from qcg.pilotjob.report.run_summary import MOST_BINS, History

N = TypeVar("N", int, float)

SHORTEST = 1.0
"""Seconds in a bin of a run that has just begun."""


class HistoryBins:
    """Bins of equal width from the first submission on. Their width doubles when there are too many."""

    def __init__(self, first: float, width: float = SHORTEST) -> None:
        self.first = first
        self.width = width
        self._busy: list[float] = []
        self._cores: list[float] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._failures: list[int] = []

    def add_use(self, since: float, until: float, busy: float, cores: float) -> None:
        """Count the use of cores from one time to another. `busy`: the average number of cores in use. `cores`: the
        number of cores that the run had."""
        since = max(since, self.first)
        if until <= since:
            return
        last = self._bin_of(math.nextafter(until, since))
        for number in range(self._bin_of(since), last + 1):
            begin = self.first + number * self.width
            seconds = min(until, begin + self.width) - max(since, begin)
            self._busy[number] += busy * seconds
            self._cores[number] += cores * seconds

    def add_bin(self, number: int, busy: float, cores: float) -> None:
        """Add core-seconds to a bin."""
        self._reach(number)
        self._busy[number] += busy
        self._cores[number] += cores

    def count(self, at: float, starts: int = 0, ends: int = 0, failures: int = 0) -> None:
        number = self._bin_of(max(at, self.first))
        self._starts[number] += starts
        self._ends[number] += ends
        self._failures[number] += failures

    def merge(self, later: HistoryBins) -> None:
        """Add the bins of a later history."""
        for number in range(len(later._busy)):
            since = later.first + number * later.width
            busy, cores = later._busy[number] / later.width, later._cores[number] / later.width
            self.add_use(since, since + later.width, busy, cores)
            counts = later._starts[number], later._ends[number], later._failures[number]
            self.count(since + later.width / 2, *counts)

    def history(self) -> History:
        return History(
            self.first,
            self.width,
            tuple([round(seconds, 3) for seconds in self._busy]),
            tuple([round(seconds, 3) for seconds in self._cores]),
            tuple(self._starts),
            tuple(self._ends),
            tuple(self._failures),
        )

    def _bin_of(self, at: float) -> int:
        """The number of the bin of a time. Adds the bin if it does not exist."""
        while at - self.first >= self.width * MOST_BINS:
            self._double()
        number = int((at - self.first) / self.width)
        self._reach(number)
        return number

    def _reach(self, number: int) -> None:
        missing = number + 1 - len(self._busy)
        if missing > 0:
            for seconds in (self._busy, self._cores):
                seconds += [0.0] * missing
            for counts in (self._starts, self._ends, self._failures):
                counts += [0] * missing

    def _double(self) -> None:
        self.width *= 2
        self._busy, self._cores = _pairs(self._busy), _pairs(self._cores)
        self._starts, self._ends = _pairs(self._starts), _pairs(self._ends)
        self._failures = _pairs(self._failures)


def _pairs(bins: list[N]) -> list[N]:
    even, odd = bins[::2], bins[1::2]
    return [one + other for one, other in zip(even, odd, strict=False)] + even[len(odd) :]
