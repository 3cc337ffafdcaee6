"""When the wall times of jobs are over."""

import heapq
from typing import List, Mapping, Optional, Tuple


class WallTimes:
    def __init__(self) -> None:
        self._ends: List[Tuple[float, str, float]] = []

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, id: str, began: float, wall_time: float, under_way: Mapping[str, object]) -> None:
        """`began` is monotonic, as all moments here are."""
        heapq.heappush(self._ends, (began + wall_time, id, wall_time))
        if len(self._ends) > 2 * len(under_way) + 1000:
            # Mostly of jobs that ended in time, and that would be remembered for hours.
            self._ends = [entry for entry in self._ends if entry[1] in under_way]
            heapq.heapify(self._ends)

    def next(self, under_way: Mapping[str, object]) -> Optional[float]:
        """When the first one of these is over."""
        while self._ends and self._ends[0][1] not in under_way:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def is_one_over(self, now: float) -> bool:
        return bool(self._ends) and self._ends[0][0] <= now

    def take(self, now: float) -> List[Tuple[str, float]]:
        """The ids of those that are over, also of jobs that have ended, with their wall times."""
        over = []
        while self.is_one_over(now):
            _, id, wall_time = heapq.heappop(self._ends)
            over.append((id, wall_time))
        return over
