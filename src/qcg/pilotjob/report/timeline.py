"""The timeline of a run: the attempts of each core over time. Stored sums make every window cheap to draw."""

from __future__ import annotations

import math
import sqlite3
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import chain, pairwise
from typing import Literal

from msgspec import Struct

from qcg.pilotjob.core.job_states import STATES, counts_by_name
from qcg.pilotjob.report.attempt_columns import AttemptColumns, read_columns
from qcg.pilotjob.report.timeline_builder import Builder, NodeLoad
from qcg.pilotjob.report.timeline_lanes import Lane, Load, Profile

Level = Literal["core", "node"]

MOST_CELLS = 1 << 15
"""The most bins of all rows together."""
FEWEST_BINS = 32
MOST_BARS = 4000
"""The most attempts that are listed one by one, in all rows together."""
PIXELS_PER_BAR = 6
"""Least average width of attempts in pixels for which a row lists them one by one."""
DIGITS = 4


class Bar(Struct, frozen=True):
    """An attempt in a row of the timeline."""

    name: str
    start: float
    end: float | None
    """None while it runs, and when its end is not known."""
    state: str
    attempt: int


class TimelineRow(Struct, frozen=True, omit_defaults=True):
    """A core or a node in a window of time: its attempts where they are few, else bins of equal length."""

    node: str
    core: int | None
    """None for a whole node."""
    cores: int
    attempts: list[Bar] | None = None
    busy: list[float] | None = None
    """The part of the time of its cores that attempts had in each bin, from 0 to 1."""
    counts: list[int] | None = None
    """Attempts that ran in each bin."""
    failures: list[int] | None = None
    """Attempts that failed in each bin."""


class Throughput(Struct, frozen=True):
    """Numbers of attempts in each bin."""

    starts: list[int]
    ends: list[int]
    failures: list[int]


class Timeline:
    """All attempts of a run by node and core. Immutable and thread-safe.

    `first` and `last` are the first and the last recorded time of the run.
    """

    def __init__(self, columns: AttemptColumns, until: float | None = None) -> None:
        """`until`: the assumed end of attempts without an end; by default, the last recorded time."""
        known = max(chain(columns.starts, columns.ends), default=columns.submitted)
        self.last = known if until is None else max(known, until)
        self.first = min(columns.starts, default=columns.submitted)
        if columns.submitted:
            self.first = min(self.first, columns.submitted)
        self._names, self._places, self._numbers, self._states = (
            columns.names,
            columns.places,
            columns.numbers,
            columns.states,
        )
        builder = Builder(columns, self.first, self.last)
        self._whole = builder.whole()
        self._running_ends = builder.running_ends()
        self._lanes = builder.lanes()
        self._nodes = builder.nodes()
        self._capacity = _capacity(self._nodes, self.first, self.last)

    @classmethod
    def read(cls, connection: sqlite3.Connection, until: float | None = None) -> Timeline:
        """The timeline of a registry. `until`: the current time for a run that has a manager."""
        return cls(read_columns(connection), until)

    @property
    def attempts(self) -> int:
        return len(self._places)

    def states(self) -> dict[str, int]:
        """Numbers of attempts by state, for states with attempts."""
        return counts_by_name(Counter(self._states))

    def lanes(self, level: Level) -> int:
        """The number of rows."""
        return len(self._lanes if level == "core" else self._nodes)

    def rows(self, first: float, last: float, width: int, lanes: slice, level: Level) -> list[TimelineRow]:
        """Rows of a window. `width`: its width in pixels, and the most bins of a row."""
        last = max(last, math.nextafter(first, math.inf))
        if level == "node":
            nodes = self._nodes[lanes]
            times = _times(first, last, _bins(width, len(nodes)))
            return [_binned(TimelineRow(node.node, None, node.cores), node.load, times) for node in nodes]
        chosen = self._lanes[lanes]
        times = _times(first, last, _bins(width, len(chosen)))
        few = min(width // PIXELS_PER_BAR, MOST_BARS // max(len(chosen), 1))
        rows = []
        for node, core, lane in chosen:
            found = None if lane is None else lane.between(first, last, few)
            if lane is None or found is None:
                rows.append(_binned(TimelineRow(node, core, 1), lane, times))
            else:
                rows.append(TimelineRow(node, core, 1, attempts=[self._bar(lane, position) for position in found]))
        return rows

    def utilisation(self, first: float, last: float, bins: int) -> list[float]:
        """The part of all cores that attempts had in each bin, from 0 to 1.

        Where managers of a run had different nodes, a node counts from its first attempt, and one that the last
        manager does not have until its last attempt.
        """
        times = _times(first, last, bins)
        busy, possible = self._whole.profile(times).busy, self._capacity.profile(times).busy
        return [_fraction(b - a, d - c) for (a, b), (c, d) in zip(pairwise(busy), pairwise(possible), strict=True)]

    def throughput(self, first: float, last: float, bins: int) -> Throughput:
        """Attempts that start, end and fail in each bin."""
        times = _times(first, last, bins)
        _, started, ended = self._whole.profile(times)
        known = [count - bisect_right(self._running_ends, time) for count, time in zip(ended, times, strict=True)]
        return Throughput(_differences(started), _differences(known), _counted(self._whole.failed, times))

    def _bar(self, lane: Lane, position: int) -> Bar:
        attempt = lane.attempts[position]
        state = STATES[self._states[attempt]]
        return Bar(
            self._names.name(self._places[attempt]),
            lane.starts[position],
            lane.ends[position] if state.is_final else None,
            state.name,
            self._numbers[attempt],
        )


def _capacity(nodes: list[NodeLoad], first: float, last: float) -> Load:
    """The cores of the run over time."""
    same = all(node.current for node in nodes)
    begins, ends, cores = array("d"), array("d"), array("I")
    for node in nodes:
        begin, end = (first, last) if node.load is None else node.load.span
        begins.append(first if same else begin)
        ends.append(max(last, end) if node.current else end)
        cores.append(node.cores)
    return Load.of(begins, ends, cores, array("d"), first)


def _bins(width: int, rows: int) -> int:
    return max(min(width, MOST_CELLS // max(rows, 1)), FEWEST_BINS)


def _times(first: float, last: float, bins: int) -> list[float]:
    """The times between bins, and those at both ends."""
    width = (last - first) / bins
    return [*(first + number * width for number in range(bins)), last]


def _binned(row: TimelineRow, of: Lane | Load | None, times: list[float]) -> TimelineRow:
    bins = len(times) - 1
    if of is None:
        zeros = [0] * bins
        return TimelineRow(row.node, row.core, row.cores, busy=[0.0] * bins, counts=zeros, failures=zeros)
    profile: Profile = of.profile(times)
    possible = (times[-1] - times[0]) / bins * row.cores
    return TimelineRow(
        row.node,
        row.core,
        row.cores,
        busy=[round(_fraction(b - a, possible), DIGITS) for a, b in pairwise(profile.busy)],
        counts=[started - ended for started, ended in zip(profile.started[1:], profile.ended, strict=False)],
        failures=_counted(of.failed, times),
    )


def _fraction(part: float, whole: float) -> float:
    """Between 0 and 1, also where sums are not exact."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0


def _counted(moments: array[float], times: list[float]) -> list[int]:
    """The number of times in each bin. A bin includes its end and excludes its beginning."""
    first, end = bisect_right(moments, times[0]), bisect_right(moments, times[-1])
    if end - first > len(times):
        return _differences([bisect_right(moments, time) for time in times])
    counts = [0] * (len(times) - 1)
    for moment in moments[first:end]:
        counts[bisect_left(times, moment) - 1] += 1
    return counts


def _differences(sums: list[int]) -> list[int]:
    return [b - a for a, b in pairwise(sums)]
