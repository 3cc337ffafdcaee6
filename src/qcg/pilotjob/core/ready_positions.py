"""The single iterations of a job that can be started: in the order of their positions, and quickly taken back."""

from __future__ import annotations

import heapq

from qcg.pilotjob.core.job_states import QUEUED

FEW = 64
"""Number of positions taken back up to which they stay in the heap, however few others it has."""


class ReadyPositions:
    """A heap of positions. Each change costs the same for a few positions and for a million."""

    __slots__ = ("_heap", "_wanted")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._wanted: set[int] | None = None
        """The positions that can be started, once one was taken back: the heap still has the others."""

    def __len__(self) -> int:
        return len(self._heap if self._wanted is None else self._wanted)

    def __contains__(self, position: int) -> bool:
        return position in (self._heap if self._wanted is None else self._wanted)

    def add(self, position: int) -> None:
        if self._wanted is not None:
            if position in self._wanted:
                return
            self._wanted.add(position)
        heapq.heappush(self._heap, position)

    def first(self, states: bytearray) -> int | None:
        """The first position, or None; positions that are no longer queued are dropped."""
        heap, wanted = self._heap, self._wanted
        while heap:
            position = heap[0]
            if states[position] == QUEUED and (wanted is None or position in wanted):
                return position
            self.drop_first()
        return None

    def drop_first(self) -> None:
        position = heapq.heappop(self._heap)
        if self._wanted is not None:
            self._wanted.discard(position)

    def withdraw(self, position: int) -> None:
        """Do not start this position until it is added again."""
        if self._wanted is None:
            self._wanted = set(self._heap)
        self._wanted.discard(position)
        if len(self._heap) > 2 * len(self._wanted) + FEW:
            self._heap = sorted(self._wanted)
