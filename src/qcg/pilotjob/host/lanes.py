"""Jobs that use the same cores one after another: whoever comes next starts when the one before is over, without a
word from the manager."""

from collections import deque
from typing import Deque, Dict, List, Optional

from qcg.pilotjob.host.records import Launch


class Lanes:
    def __init__(self) -> None:
        self._behind: Dict[str, Deque[Launch]] = {}
        """By lane, in order. Somebody of each of these lanes is under way."""
        self._lane_of: Dict[str, str] = {}
        """The lanes of those who are under way in another lane than their own."""
        self._under_way: Dict[str, str] = {}
        """Who that is, by lane."""
        self._waiting: Dict[str, Launch] = {}

    def __contains__(self, id: str) -> bool:
        """Whether it waits for the one before it."""
        return id in self._waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, launch: Launch, first_is_under_way: bool) -> bool:
        """Put it at the end of its lane. False when nobody is there, so that it can be started at once."""
        behind = self._behind.get(launch.lane)
        if behind is None:
            behind = self._behind[launch.lane] = deque()
            if not first_is_under_way:
                self._enter(launch.id, launch.lane)
                return False
        behind.append(launch)
        self._waiting[launch.id] = launch
        return True

    def drop(self, id: str) -> None:
        """One that waits is not wanted any more."""
        del self._waiting[id]

    def next(self, id: str) -> Optional[Launch]:
        """The one to start, now that `id` is over."""
        lane = self._lane_of.pop(id, id)
        self._under_way.pop(lane, None)
        behind = self._behind.get(lane)
        if behind is None:
            return None
        while behind:
            launch = behind.popleft()
            if self._waiting.pop(launch.id, None) is launch:
                self._enter(launch.id, lane)
                return launch
        del self._behind[lane]
        return None

    def _enter(self, id: str, lane: str) -> None:
        self._lane_of[id] = lane
        self._under_way[lane] = id

    def of(self, id: str) -> str:
        """The lane of one that is under way."""
        return self._lane_of.get(id, id)

    def under_way(self, lane: str) -> str:
        return self._under_way.get(lane, lane)

    def behind(self, lane: str) -> List[Launch]:
        """Those that wait in this lane, in order."""
        return [launch for launch in self._behind.get(lane, ()) if self._waiting.get(launch.id) is launch]

    def occupied(self) -> List[str]:
        """The lanes in which somebody may wait."""
        return list(self._behind)

    def clear(self) -> None:
        self._behind.clear()
        self._lane_of.clear()
        self._under_way.clear()
        self._waiting.clear()
