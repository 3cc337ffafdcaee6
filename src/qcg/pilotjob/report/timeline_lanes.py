"""Attempts of a core or a node over time, as sorted arrays: attempts between two times are found by bisection."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, islice
from operator import gt, sub
from typing import NamedTuple

BLOCK = 16
"""Steps between two stored sums."""


class Profile(NamedTuple):
    """Cumulative sums at several times."""

    busy: list[float]
    """Core-seconds before each time."""
    started: list[int]
    """Attempts that started before each time."""
    ended: list[int]
    """Attempts that ended at or before each time."""


class Lane:
    """The attempts of one core, in the order of their starts. Every attempt ends after its start.

    Grants are exclusive, so that attempts of a core follow one another. Clocks of nodes may differ, and records of lost
    attempts may be late: where attempts overlap nevertheless, the core is busy while any of them runs.
    """

    def __init__(self, attempts: array[int], starts: array[float], ends: array[float], failed: array[float]) -> None:
        """`failed`: ends of failed attempts."""
        self.attempts = attempts
        """Numbers of the attempts in the tables of the timeline."""
        self.starts = starts
        self.ends = ends
        self.failed = array("d", sorted(failed))
        self._overlap = _Overlap(starts, ends) if any(map(gt, ends, islice(starts, 1, None))) else None
        durations = map(sub, ends, starts) if self._overlap is None else self._overlap.durations()
        self._busy = array("d", accumulate(durations, initial=0.0))

    def profile(self, times: Sequence[float]) -> Profile:
        if self._overlap is not None:
            return self._overlap.profile(times, self.starts, self._busy)
        starts, ends, sums = self.starts, self.ends, self._busy
        busy: list[float] = []
        started: list[int] = []
        ended: list[int] = []
        index = 0
        for time in times:
            index = bisect_left(starts, time, index)
            started.append(index)
            if index and (rest := ends[index - 1] - time) > 0:
                busy.append(sums[index] - rest)
                ended.append(index - 1)
            else:
                busy.append(sums[index])
                ended.append(index)
        return Profile(busy, started, ended)

    def between(self, first: float, last: float, most: int) -> list[int] | None:
        """Positions of the attempts that ran in a time; None when there are more than `most`."""
        if self._overlap is None:
            positions = range(bisect_right(self.ends, first), bisect_left(self.starts, last))
            return list(positions) if len(positions) <= most else None
        _, started, ended = self.profile([first, last])
        if started[1] - ended[0] > most:
            return None
        possible = range(bisect_right(self._overlap.reach, first), started[1])
        return [position for position in possible if self.ends[position] > first]


class _Overlap:
    """Additional sums for a lane with overlapping attempts."""

    def __init__(self, starts: array[float], ends: array[float]) -> None:
        self.reach = array("d", accumulate(ends, max))
        """The latest end of an attempt and all before it."""
        self._sorted_ends = array("d", sorted(ends))
        self._begins = array("d", map(max, starts, chain(starts[:1], self.reach)))
        """Times from which no earlier attempt runs."""

    def durations(self) -> Iterable[float]:
        """Seconds that each attempt adds: none, when it ends before an earlier one."""
        return map(sub, self.reach, self._begins)

    def profile(self, times: Sequence[float], starts: array[float], sums: array[float]) -> Profile:
        started = [bisect_left(starts, time) for time in times]
        ended = [bisect_right(self._sorted_ends, time) for time in times]
        busy = []
        for time in times:
            index = bisect_left(self._begins, time)
            busy.append(sums[index] - (max(self.reach[index - 1] - time, 0.0) if index else 0.0))
        return Profile(busy, started, ended)


class Load:
    """The attempts of a node, or of all nodes, on any number of cores."""

    def __init__(self, starts: Steps, ends: Steps, failed: array[float]) -> None:
        self.failed = failed
        """Ends of failed attempts, sorted."""
        self._starts = starts
        self._ends = ends

    @classmethod
    def of(
        cls, starts: array[float], ends: array[float], cores: array[int], failed: array[float], origin: float
    ) -> Load:
        steps = Steps.of(starts, cores, origin), Steps.of(ends, cores, origin)
        return cls(*steps, array("d", sorted(failed)))

    @property
    def span(self) -> tuple[float, float]:
        """The first start and the last end."""
        return self._starts.times[0], self._ends.times[-1]

    def profile(self, times: Sequence[float]) -> Profile:
        started = [bisect_left(self._starts.times, time) for time in times]
        ended = [bisect_right(self._ends.times, time) for time in times]
        taken, given_back = self._starts.areas(times, started), self._ends.areas(times, ended)
        return Profile(list(map(sub, taken, given_back)), started, ended)


class Steps:
    """Times at which a number of cores goes up. The area below it is found from sums of every 16 steps."""

    def __init__(self, times: array[float], cores: array[int] | None, origin: float) -> None:
        """`origin`: the time from which seconds are counted: sums of small numbers are more exact than sums of seconds
        since 1970."""
        self.times = times
        """Sorted."""
        self._cores = cores
        """None when every step is one core."""
        self._origin = origin
        blocks = range(0, len(times), BLOCK)
        self._moments = array("d", accumulate((self._moment(at, at + BLOCK) for at in blocks), initial=0.0))
        counts = None if cores is None else (sum(cores[at : at + BLOCK]) for at in blocks)
        self._counts = None if counts is None else array("q", accumulate(counts, initial=0))

    @classmethod
    def of(cls, times: array[float], cores: array[int], origin: float) -> Steps:
        if all(map((1).__eq__, cores)):
            return cls(array("d", sorted(times)), None, origin)
        order = sorted(range(len(times)), key=times.__getitem__)
        by_time = array("d", map(times.__getitem__, order)), array("I", map(cores.__getitem__, order))
        return cls(*by_time, origin)

    def areas(self, times: Sequence[float], indices: Sequence[int]) -> list[float]:
        """Core-seconds up to each time. `indices`: how many steps there are before it."""
        found = []
        moments, origin = self._moments, self._origin
        for time, index in zip(times, indices, strict=True):
            block = index // BLOCK
            first = block * BLOCK
            moment = moments[block] + self._moment(first, index)
            if self._counts is None or self._cores is None:
                found.append(index * (time - origin) - moment)
            else:
                found.append((self._counts[block] + sum(self._cores[first:index])) * (time - origin) - moment)
        return found

    def _moment(self, first: int, end: int) -> float:
        """The sum of the times of some steps since the origin, each multiplied by its cores."""
        times = self.times[first:end]
        if self._cores is None:
            return sum(times) - len(times) * self._origin
        return sum([(time - self._origin) * count for time, count in zip(times, self._cores[first:end], strict=True)])
