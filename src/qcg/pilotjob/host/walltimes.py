"""Deadlines of jobs with a wall time."""

import heapq
from typing import List, Mapping, Optional, Tuple


class WallTimes:
    def __init__(self) -> None:
        self._ends: List[Tuple[float, str, float]] = []
        """Heap of deadline, id and wall time."""

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, id: str, began: float, wall_time: float, running: Mapping[str, object]) -> None:
        """Add the deadline of a job. All times are monotonic."""
        heapq.heappush(self._ends, (began + wall_time, id, wall_time))
        if len(self._ends) > 2 * len(running) + 1000:
            # Most entries are of jobs that ended in time, and would be kept for hours.
            self._ends = [entry for entry in self._ends if entry[1] in running]
            heapq.heapify(self._ends)

    def next(self, running: Mapping[str, object]) -> Optional[float]:
        """The first deadline of the jobs that are still running."""
        while self._ends and self._ends[0][1] not in running:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def has_passed(self, now: float) -> bool:
        return bool(self._ends) and self._ends[0][0] <= now

    def take(self, now: float) -> List[Tuple[str, float]]:
        """Remove passed deadlines. Returns ids and wall times, also of jobs that have ended."""
        over = []
        while self.has_passed(now):
            _, id, wall_time = heapq.heappop(self._ends)
            over.append((id, wall_time))
        return over
