"""Prefill: launches sent ahead to hosts, so that no core idles for a round trip between two short jobs.

A waiting job whose request equals the grant of a running attempt is launched before that attempt is over: it joins the
lane of the attempt, and the host starts it as soon as the cores are free. Prefill does not change the order of jobs:
only the first job in the queue of a group of nodes joins a lane, so no job is overtaken, and it would have got those
cores a little later anyway. It may start slightly later than on other cores: only requests whose recent attempts were
short are prefilled, only as many as are expected to end within `HORIZON`, and attempts are retracted when those before
them take unexpectedly long.

The attempts of a lane share its counters of the run, too, so prefill never takes any. A job that waits for such
counters keeps no others from joining lanes, except later jobs that need the same counters.
"""

from __future__ import annotations

import heapq

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Launch, Retract
from qcg.pilotjob.core.job_states import SCHEDULED
from qcg.pilotjob.core.node_group import NodeGroup
from qcg.pilotjob.core.queue import Durations, Head, QueueLine, entry_of
from qcg.pilotjob.core.records import Attempt, Job, Lane

SHORT_ATTEMPT = 0.1
"""Longest recent duration in seconds with which a request is prefilled."""
HORIZON = 0.2
"""Seconds in which all attempts of a lane are expected to be over."""
MAX_LANE_DEPTH = 256
"""Attempts behind the first one of a lane."""
MAX_PREFILL_PER_NODE = 512
"""Prefilled attempts on a node, but at least one for each lane: more than a host can start during a round trip."""
RETRACT_AFTER = 0.5
"""Seconds after which the attempts behind a running one are retracted."""
LONGEST_LANE = 1.0
"""Seconds that the attempts of a lane may be expected to take. If attempts turn out to take longer than those before
them, all but the first are retracted, so that holds, changes and other jobs do not wait for them."""

OpenLane = tuple[int, int, Attempt, int]
"""An attempt to queue behind: current depth, number, attempt, maximum depth."""


def lane_depth(durations: Durations) -> int:
    """The number of attempts that may wait behind a running one: 0 if attempts may be long."""
    if durations.longest is None or durations.longest > SHORT_ATTEMPT:
        return 0
    return MAX_LANE_DEPTH if durations.mean * MAX_LANE_DEPTH <= HORIZON else int(HORIZON / durations.mean)


def prefill_lanes(core: CoreState, left: float, closed: set[NodeGroup]) -> None:
    """After a scheduling pass, launch the first waiting jobs into lanes of attempts with an equal request.

    `closed`: the groups in which a job must not be overtaken, so that nothing is sent ahead.
    """
    prefillable, core.prefillable = core.prefillable, {}
    open_lanes = _open_lanes(core, prefillable)
    _retract_late_lanes(core)
    if not open_lanes:
        return
    overdue = core.now - core.patience
    heads = core.queue.heads(overdue, left, as_if_idle=True)
    counters, awaited = core.pool.counters, set[str]()
    for _, _, _, line in heads:
        extra = line.request.extra
        if line.served <= overdue and (extra is None or counters.has(extra)):
            closed.update(line.target.groups)
    if closed:
        heads = _outside(closed, heads)
    while heads:
        _, position, _, line = heads[0]
        # Jobs that avoid a node are not sent ahead: it may be the one with a lane.
        lanes = open_lanes.get(line.durations) if not line.avoid else None
        if closed and lanes:
            lanes = open_lanes[line.durations] = _lanes_outside(core, closed, lanes)
        extra = line.request.extra
        if extra is not None and (not awaited.isdisjoint(extra.names_of_run) or not (lanes or counters.has(extra))):
            awaited.update(extra.names_of_run)
            heapq.heappop(heads)
            continue
        if not lanes:
            closed.update(line.target.groups)
            heads = _outside(closed, heads)
            continue
        _append_to_lane(core, line.take(position, core.now), position, lanes)
        head = line.head(left)
        if head is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, head)


def retract_prefilled(core: CoreState) -> None:
    """Take back the attempts in lanes: the time of the manager is over."""
    prefillable, core.prefillable = core.prefillable, {}
    for attempt in prefillable:
        if attempt.lane is not None:
            attempt.lane.since = core.now
    _retract_late_lanes(core, 0.0)


def retract_from(core: CoreState, node: str) -> None:
    """Take back the attempts in lanes of a node."""
    for lane in [lane for lane in core.lanes if lane.first.grant.parts[0].node == node]:
        _retract(core, lane)


def retract_job(core: CoreState, job: Job, position: int = -1) -> None:
    """Take back the attempts of a job or an iteration that wait in lanes, and what else waits in these lanes."""
    for lane in {attempt.lane: None for attempt in job.attempts_in_progress(position) if is_prefilled(attempt)}:
        if lane is not None and not lane.retracted:
            _retract(core, lane)


def is_prefilled(attempt: Attempt) -> bool:
    """Whether an attempt waits in a lane behind another one: its job is a waiting job to users."""
    return attempt.lane is not None and attempt.lane.first is not attempt


def _retract(core: CoreState, lane: Lane) -> None:
    core.lanes.pop(lane, None)
    lane.retracted = True
    core.effects.append(Retract(list(lane.attempts)[1:]))


def _outside(closed: set[NodeGroup], heads: list[Head]) -> list[Head]:
    """The heads of lines whose jobs can run in another group than the closed ones."""
    heads = [head for head in heads if not closed.issuperset(head[3].target.groups)]
    heapq.heapify(heads)
    return heads


def _lanes_outside(core: CoreState, closed: set[NodeGroup], lanes: list[OpenLane]) -> list[OpenLane]:
    """The lanes in other groups than the closed ones. Lines for any host have lanes in several groups."""
    lanes = [lane for lane in lanes if core.pool.group_of(lane[2].grant.parts[0].node) not in closed]
    heapq.heapify(lanes)
    return lanes


def _open_lanes(core: CoreState, prefillable: dict[Attempt, None]) -> dict[Durations, list[OpenLane]]:
    """For each request, a heap of attempts to queue behind."""
    open_lanes: dict[Durations, list[OpenLane]] = {}
    for number, attempt in enumerate(prefillable):
        node = core.pool.node(attempt.grant.parts[0].node)
        lane = attempt.lane
        if lane is not None:
            lane.since = core.now
        if (
            attempt.kill_requested
            or core.attempts.get(attempt.id) is not attempt
            or (lane is not None and lane.retracted)
        ):
            continue
        if not node.available or node.contested or node.spec.slots:
            continue
        durations = entry_of(attempt.job, attempt.position).line.durations
        lanes_on_node = len(node.spec.cores) // len(attempt.grant.parts[0].cores)
        most = min(lane_depth(durations), max(MAX_PREFILL_PER_NODE // lanes_on_node, 1))
        depth = 0 if lane is None else len(lane.attempts) - 1
        if lane is not None and depth * durations.mean > LONGEST_LANE:
            _retract(core, lane)
        elif depth < most:
            open_lanes.setdefault(durations, []).append((depth, number, attempt, most))
    for heap in open_lanes.values():
        heapq.heapify(heap)
    return open_lanes


def _append_to_lane(core: CoreState, job: Job, position: int, lanes: list[OpenLane]) -> None:
    depth, number, first, most = lanes[0]
    if depth + 1 < most:
        heapq.heapreplace(lanes, (depth + 1, number, first, most))
    else:
        heapq.heappop(lanes)
    lane = first.lane
    if lane is None:
        lane = first.lane = Lane(first, core.now)
        core.pool.node(first.grant.parts[0].node).expected_ends = None
    if core.reservations:
        core.reservations.clear()
    attempt = Attempt(job, position, job.last_number_of(position) + 1, first.grant, core.now)
    attempt.lane = lane
    lane.attempts[attempt] = None
    core.lanes.setdefault(lane)
    core.add_attempt(attempt)
    core.transition(job, position, SCHEDULED, attempt)
    core.effects.append(Launch(attempt))


def note_prefillable(core: CoreState, attempt: Attempt, line: QueueLine) -> None:
    """Remember an attempt on newly allocated cores as one to queue behind, if its request can be prefilled."""
    if line.has_one_size and len(attempt.grant.parts) == 1 and lane_depth(line.durations):
        core.prefillable[attempt] = None


def _retract_late_lanes(core: CoreState, after: float = RETRACT_AFTER) -> None:
    """Retract the attempts of each lane whose first attempt has run longer than `after` seconds. Their jobs are queued
    again when the hosts report the retracted attempts."""
    while core.lanes:
        lane = next(iter(core.lanes))
        if core.now - lane.since < after:
            return
        durations = entry_of(lane.first.job, lane.first.position).line.durations
        durations.longest = max(core.now - lane.since, durations.longest or 0.0)
        _retract(core, lane)
