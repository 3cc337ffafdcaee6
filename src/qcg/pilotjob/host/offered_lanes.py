"""Which lanes the lane runner of a job host has, and which of them have to be offered to it again."""

from typing import Callable, Dict, Iterable, List, Mapping

from qcg.pilotjob.host.job import ActiveJob
from qcg.pilotjob.host.lane_runner import LaneRunner, Offer
from qcg.pilotjob.host.lanes import Lanes
from qcg.pilotjob.host.records import Launch


class OfferedLanes:
    def __init__(self, runner: LaneRunner, lanes: Lanes, prepare: Callable[[Iterable[Launch]], List[Offer]]) -> None:
        """`prepare` makes offers of launches, up to the first one that the lane runner cannot start."""
        self._runner = runner
        self._lanes = lanes
        self._prepare = prepare
        self.planned: Dict[str, None] = {}
        """Lanes that may have launches which the lane runner does not have."""

    def plan(self, lanes: Iterable[str]) -> None:
        if self._runner.takes_lanes:
            self.planned.update(dict.fromkeys(lanes))

    def job_started(self, id: str) -> None:
        if not self._runner.takes_lanes:
            return
        lane = self._lanes.lane_of(id)
        if not self._runner.has_lane(lane):
            self.planned[lane] = None

    def offer_planned(self, jobs: Mapping[str, ActiveJob]) -> None:
        """Offer the launches of all planned lanes whose active job is one of `jobs`."""
        planned, self.planned = self.planned, {}
        for lane in planned:
            # First, because a runner without lanes of its own accepts none, and listing launches takes time.
            if not self._runner.accepts(lane):
                continue
            waiting = self._lanes.unoffered(lane)
            job = jobs.get(self._lanes.active_job(lane))
            if not waiting or job is None or not job.is_simple:
                continue
            # Prepared before anything else, because that takes longer than a short job does.
            offers = self._prepare(waiting)
            if self._runner.offer(lane, job, offers):
                self._lanes.offered(lane, len(offers))
            else:
                self.take_back(lane)

    def take_back(self, lane: str) -> None:
        """The lane runner starts no more jobs of this lane. Its handovers have to be recorded afterwards."""
        self._lanes.withdrawn(lane)
        self._runner.release(lane)

    def take_back_for_now(self, lanes: Iterable[str]) -> None:
        """Take these lanes back until they are offered again."""
        for lane in lanes:
            if self._runner.has_lane(lane):
                self.take_back(lane)
                self.planned[lane] = None
