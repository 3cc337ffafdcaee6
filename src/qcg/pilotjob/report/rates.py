"""Rates of starts and ends over the last seconds, from samples of two counters."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from qcg.pilotjob.report.run_summary import Rates

WINDOW = 60.0
"""Seconds over which rates are counted."""
LONG_WINDOW = 3600.0
"""Seconds over which rates are counted if few attempts end."""
ENOUGH_ENDS = 10
"""Ends in a window that are enough for a rate; with fewer, the longer window is used."""
LONG_STEP = 15.0
"""Seconds between the samples of the longer window."""
SHORTEST = 1.0
"""Seconds after which there is a rate."""


class Sample(NamedTuple):
    at: float
    starts: int
    ends: int


class RateWindow:
    """The last samples of the numbers of starts and ends."""

    def __init__(self, at: float, starts: int = 0, ends: int = 0) -> None:
        first = Sample(at, starts, ends)
        self._recent = deque([first])
        self._older = deque([first])

    def add(self, at: float, starts: int, ends: int) -> None:
        sample = Sample(at, starts, ends)
        self._recent.append(sample)
        if at - self._older[-1].at >= LONG_STEP:
            self._older.append(sample)

    def rates(self, at: float) -> Rates | None:
        """The rates up to now; None in the first second."""
        now = self._recent[-1]
        first = _sample_at(self._recent, at - WINDOW)
        if now.ends - first.ends < ENOUGH_ENDS:
            first = _sample_at(self._older, at - LONG_WINDOW)
            seconds = min(at - first.at, LONG_WINDOW)
        else:
            seconds = min(at - first.at, WINDOW)
        if seconds < SHORTEST:
            return None
        return Rates((now.starts - first.starts) / seconds, (now.ends - first.ends) / seconds, seconds)


def _sample_at(samples: deque[Sample], at: float) -> Sample:
    """The last sample before a time, or the first one after it. Samples before it are dropped."""
    while len(samples) > 1 and samples[1].at <= at:
        samples.popleft()
    return samples[0]
