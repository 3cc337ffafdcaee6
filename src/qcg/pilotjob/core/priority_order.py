"""Queue entries sorted by the priority of their jobs, and by arrival among equals."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from qcg.pilotjob.core.arrival_order import ArrivalOrder

if TYPE_CHECKING:
    from qcg.pilotjob.core.queue import QueueEntry

RANK_STEP = 1 << 32
"""Difference of the ranks of two neighbouring priorities: more than the number of any job."""
MAX_RANKS = 64
"""Number of priorities with an order of their own. Entries with further priorities go to a heap, which needs more
memory for each entry and less for each priority."""


@lru_cache(1024)
def rank_of(priority: int) -> int:
    """The number that, added to a job number, orders jobs by priority first. Cached, so that jobs share the number."""
    return -priority * RANK_STEP


class PriorityOrder:
    """The entries of one queue line whose jobs have several priorities.

    Entries of the same priority are added and removed in constant time, as without priorities.
    """

    __slots__ = ("_count", "_orders", "_ranks", "_rest")

    def __init__(self, entries: ArrivalOrder) -> None:
        """`entries`: the entries of the line so far, all with priority 0."""
        self._orders: dict[int, ArrivalOrder] = {0: entries} if entries else {}
        self._ranks = list(self._orders)
        """Sorted ranks of the orders, none of which is empty."""
        self._rest: list[tuple[int, int, QueueEntry]] = []
        """Heap of further entries with their place in the queue, and a number that orders entries of the same job."""
        self._count = 0

    def __len__(self) -> int:
        return sum(map(len, self._orders.values())) + len(self._rest)

    def __bool__(self) -> bool:
        return bool(self._ranks or self._rest)

    def __iter__(self) -> Iterator[QueueEntry]:
        """Iterate in any order."""
        for order in self._orders.values():
            yield from order
        for _, _, entry in self._rest:
            yield entry

    def add(self, entry: QueueEntry) -> bool:
        """Add an entry; returns whether it is the only one."""
        rank = entry.rank
        order = self._orders.get(rank)
        if order is None:
            if len(self._ranks) >= MAX_RANKS:
                self._count += 1
                heapq.heappush(self._rest, (entry.order, self._count, entry))
                return False
            order = self._orders[rank] = ArrivalOrder()
            insort(self._ranks, rank)
        return order.add(entry) and len(self._ranks) == 1 and not self._rest

    def first(self) -> QueueEntry | None:
        if self._rest and self._first_is_in_rest():
            return self._rest[0][2]
        return self._orders[self._ranks[0]].first() if self._ranks else None

    def take_first(self) -> QueueEntry:
        """Remove the first of the entries, of which there is at least one, and return it."""
        if self._rest and self._first_is_in_rest():
            return heapq.heappop(self._rest)[2]
        order = self._orders[self._ranks[0]]
        entry = order.take_first()
        if not order:
            del self._orders[self._ranks.pop(0)]
        return entry

    def before(self, place: int) -> int:
        """The number of entries before this place in the queue."""
        earlier = sum([order.before(place - rank) for rank, order in self._orders.items()])
        return earlier + sum([other < place for other, _, _ in self._rest])

    def keep(self, wanted: Callable[[QueueEntry], bool]) -> None:
        """Keep only the entries for which `wanted` is true."""
        for rank, order in list(self._orders.items()):
            order.keep(wanted)
            if not order:
                del self._orders[rank]
                self._ranks.remove(rank)
        self._rest = [one for one in self._rest if wanted(one[2])]
        heapq.heapify(self._rest)

    def _first_is_in_rest(self) -> bool:
        """Whether the first entry is in the heap, which is not empty."""
        if not self._ranks:
            return True
        first = self._orders[self._ranks[0]].first()
        return first is not None and self._rest[0][0] < first.order
