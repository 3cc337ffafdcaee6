"""Counts the jobs before a place in the queue."""

from __future__ import annotations

from bisect import bisect_left

from qcg.pilotjob.core.queue import Queue

COUNTED_EACH = 2
"""Number of counts of jobs in the queue without a list of all of them: enough to explain one job."""


class JobsAhead:
    """The queue at one moment."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._counted = 0
        """Number of calls of `count`."""
        self._in_order: list[int] = []
        """Places of all queued jobs in order; not built for the first calls of `count`."""

    def count(self, place: int) -> int:
        """The number of jobs before this place."""
        lines = self._queue.lines.values()
        for line in lines:
            if line.gone:
                line.remove_final()
        if self._counted < COUNTED_EACH:
            self._counted += 1
            return sum([line.entries.before(place) for line in lines])
        if not self._in_order:
            self._in_order = sorted([entry.order for line in lines for entry in line.entries])
        return bisect_left(self._in_order, place)
