"""Lanes: jobs that use the same cores one after another, each started when the one before it is over."""

from collections import deque
from typing import Deque, Dict, List, Optional

from qcg.pilotjob.host.records import Launch


class Lanes:
    """The launches that wait in each lane, and which job of a lane is active.

    A lane is named after the id of its first job.
    """

    def __init__(self) -> None:
        self._queues: Dict[str, Deque[Launch]] = {}
        """Waiting launches by lane, in order. Each of these lanes has an active job."""
        self._lane_of: Dict[str, str] = {}
        """Lanes of active jobs that are not the first job of their lane."""
        self._active: Dict[str, str] = {}
        """Ids of these jobs by lane."""
        self._waiting: Dict[str, Launch] = {}
        self._offered: Dict[str, int] = {}
        """By lane, the number of its first waiting launches that the lane runner has."""

    def __contains__(self, id: str) -> bool:
        """Whether this launch waits for the job before it."""
        return id in self._waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def append(self, launch: Launch, first_is_active: bool) -> bool:
        """Add a launch to the end of its lane. False when the lane is empty, so that the job can be started at once."""
        queue = self._queues.get(launch.lane)
        if queue is None:
            queue = self._queues[launch.lane] = deque()
            if not first_is_active:
                self._activate(launch.id, launch.lane)
                return False
        queue.append(launch)
        self._waiting[launch.id] = launch
        return True

    def remove(self, id: str) -> None:
        """Take a waiting launch out of its lane."""
        del self._waiting[id]

    def start_next(self, id: str) -> Optional[Launch]:
        """The launch to start, now that the active job `id` is over."""
        lane = self._lane_of.pop(id, id)
        self._active.pop(lane, None)
        queue = self._queues.get(lane)
        if queue is None:
            return None
        while queue:
            launch = queue.popleft()
            if self._waiting.pop(launch.id, None) is launch:
                self._activate(launch.id, lane)
                if lane in self._offered:
                    self._offered[lane] -= 1
                return launch
        del self._queues[lane]
        return None

    def _activate(self, id: str, lane: str) -> None:
        self._lane_of[id] = lane
        self._active[lane] = id

    def lane_of(self, id: str) -> str:
        """The lane of an active job."""
        return self._lane_of.get(id, id)

    def active_job(self, lane: str) -> str:
        """The id of the active job of a lane."""
        return self._active.get(lane, lane)

    def unoffered(self, lane: str) -> List[Launch]:
        """The waiting launches of a lane that its lane runner does not have, in order."""
        waiting = [launch for launch in self._queues.get(lane, ()) if self._waiting.get(launch.id) is launch]
        return waiting[self._offered.get(lane, 0) :]

    def offered(self, lane: str, count: int) -> None:
        """The lane runner has this many more launches of the lane."""
        self._offered[lane] = self._offered.get(lane, 0) + count

    def withdrawn(self, lane: str) -> None:
        """The lane runner has no launches of the lane any more."""
        self._offered.pop(lane, None)

    def clear(self) -> None:
        self._queues.clear()
        self._lane_of.clear()
        self._active.clear()
        self._waiting.clear()
        self._offered.clear()
