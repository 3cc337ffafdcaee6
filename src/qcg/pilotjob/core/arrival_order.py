"""Queue entries sorted by the arrival of their jobs."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qcg.pilotjob.core.queue import QueueEntry


class ArrivalOrder:
    """The entries of one queue line, first come first.

    Most entries are added and removed in order, in constant time. Only jobs that first waited for dependencies are
    added out of order; they go to a heap.
    """

    __slots__ = ("_in_order", "_late")

    def __init__(self) -> None:
        self._in_order: deque[QueueEntry] = deque()
        self._late: list[tuple[int, QueueEntry]] = []

    def __len__(self) -> int:
        return len(self._in_order) + len(self._late)

    def __iter__(self) -> Iterator[QueueEntry]:
        """Iterate in any order."""
        yield from self._in_order
        for _, entry in self._late:
            yield entry

    def add(self, entry: QueueEntry) -> bool:
        """Add an entry; returns whether it is the only one."""
        in_order = self._in_order
        if not in_order:
            in_order.append(entry)
            return not self._late
        seq = entry.job.seq
        if in_order[-1].job.seq < seq:
            in_order.append(entry)
        else:
            heapq.heappush(self._late, (seq, entry))
        return False

    def first(self) -> QueueEntry | None:
        late, in_order = self._late, self._in_order
        if not late:
            return in_order[0] if in_order else None
        return late[0][1] if not in_order or late[0][0] < in_order[0].job.seq else in_order[0]

    def before(self, seq: int) -> int:
        """The number of entries that arrived before the job with this number."""
        return bisect_left(self._in_order, seq, key=_seq_of) + sum([late < seq for late, _ in self._late])

    def take_first(self) -> QueueEntry:
        """Remove the first of the entries, of which there is at least one, and return it."""
        late, in_order = self._late, self._in_order
        if late and (not in_order or late[0][0] < in_order[0].job.seq):
            return heapq.heappop(late)[1]
        return in_order.popleft()

    def keep(self, wanted: Callable[[QueueEntry], bool]) -> None:
        """Keep only the entries for which `wanted` is true."""
        self._in_order = deque([entry for entry in self._in_order if wanted(entry)])
        self._late = [one for one in self._late if wanted(one[1])]
        heapq.heapify(self._late)


def _seq_of(entry: QueueEntry) -> int:
    return entry.job.seq
