"""Work sent ahead, so that no core waits for a message between two short jobs.

A job that waits for just what a run under way has is given these cores before that run is over: it stands behind it in
a lane, and their host starts it as soon as they are free. That changes nothing in who gets what: only the job that is
first of all that wait stands behind others, so nobody is overtaken, and it would have been given those cores anyway,
a little later. It may wait longer than it would have waited for other cores, but not by much: only where jobs have been
short, only for so many that all are over soon, and those behind a run that takes unexpectedly long are called back.
"""

from __future__ import annotations

import heapq

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Launch, Retract
from qcg.pilotjob.core.finalize import entry_of
from qcg.pilotjob.core.job_states import SCHEDULED
from qcg.pilotjob.core.queue import Durations, QueueLine
from qcg.pilotjob.core.records import Attempt, Job, Lane
from qcg.pilotjob.description.model import ResourceRequest
from qcg.pilotjob.host.records import Ended

SHORT_ATTEMPT = 0.1
"""Seconds within which every run of late must have been over, so that others may stand behind the next ones."""
HORIZON = 0.2
"""Seconds within which all that stand behind a run are expected to be over."""
MAX_LANE_DEPTH = 256
MAX_PREFILL_PER_NODE = 512
"""Unless each lane has one: more than a host can start while a message is on its way."""
RETRACT_AFTER = 0.5
"""Seconds after which a run keeps those behind it waiting too long."""
DECAY = 0.9
"""How much of what is known from earlier runs is kept after another one."""


def record_duration(attempt: Attempt, record: Ended) -> None:
    """From how long a run took, what to expect of the next ones that ask for the same."""
    if record.started:
        durations = entry_of(attempt.job, attempt.position).line.durations
        seconds = max(record.at - record.started, 0.0)
        if durations.longest is None:
            durations.longest = durations.mean = seconds
        else:
            durations.longest = max(seconds, DECAY * durations.longest)
            durations.mean += (1 - DECAY) * (seconds - durations.mean)


def lane_depth(durations: Durations) -> int:
    """How many may stand behind one run of this pace: none where one could be long, and else as many as are usually
    over soon."""
    if durations.longest is None or durations.longest > SHORT_ATTEMPT:
        return 0
    return MAX_LANE_DEPTH if durations.mean * MAX_LANE_DEPTH <= HORIZON else int(HORIZON / durations.mean)


def prefill_lanes(core: CoreState, left: float) -> None:
    """After a scheduling pass: whoever is first of those that wait goes behind a run that has what it wants."""
    prefillable, core.prefillable = core.prefillable, {}
    places = _open_lanes(core, prefillable)
    _retract_late_lanes(core)
    if not places:
        return
    overdue = core.now - core.patience
    heads = core.queue.heads(core.pool.total_cores, overdue, left)
    if any(line.served <= overdue for _, _, _, line in heads):
        return
    while heads:
        _, position, _, line = heads[0]
        lanes = places.get(line.durations)
        if not lanes:
            return
        _append_to_lane(core, line.take(position, core.now), position, lanes)
        head = line.head(left)
        if head is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, head)


def skip_prefill(core: CoreState, *, soon_over: bool) -> None:
    """After a pass in which somebody must not be overtaken; or, when all is `soon_over`, nothing may be started at all,
    also not by those who stand behind others already."""
    prefillable, core.prefillable = core.prefillable, {}
    for attempt in prefillable:
        if attempt.lane is not None:
            attempt.lane.since = core.now
    _retract_late_lanes(core, 0.0 if soon_over else RETRACT_AFTER)


def _open_lanes(
    core: CoreState, prefillable: dict[Attempt, None]
) -> dict[Durations, list[tuple[int, int, Attempt, int]]]:
    """For those who ask for the same, a heap of runs to stand behind: (how many do, a number, the run, how many
    may)."""
    places: dict[Durations, list[tuple[int, int, Attempt, int]]] = {}
    for number, attempt in enumerate(prefillable):
        node = core.pool.node(attempt.grant.parts[0].node)
        lane = attempt.lane
        if lane is not None:
            lane.since = core.now
        if attempt.killed or core.attempts.get(attempt.id) is not attempt or (lane is not None and lane.retracted):
            continue
        if not node.available or node.contested:
            continue
        durations = entry_of(attempt.job, attempt.position).line.durations
        lanes_on_node = len(node.spec.cores) // len(attempt.grant.parts[0].cores)
        most = min(lane_depth(durations), max(MAX_PREFILL_PER_NODE // lanes_on_node, 1))
        standing = 0 if lane is None else len(lane.attempts) - 1
        if standing < most:
            places.setdefault(durations, []).append((standing, number, attempt, most))
    for heap in places.values():
        heapq.heapify(heap)
    return places


def _append_to_lane(core: CoreState, job: Job, position: int, lanes: list[tuple[int, int, Attempt, int]]) -> None:
    standing, number, first, most = lanes[0]
    if standing + 1 < most:
        heapq.heapreplace(lanes, (standing + 1, number, first, most))
    else:
        heapq.heappop(lanes)
    lane = first.lane
    if lane is None:
        lane = first.lane = Lane(first, core.now)
    attempt = Attempt(job, position, job.attempts_of(position) + 1, first.grant, core.now)
    attempt.lane = lane
    lane.attempts[attempt] = None
    core.lanes.setdefault(lane)
    core.add_attempt(attempt)
    core.transition(job, position, SCHEDULED, attempt)
    core.effects.append(Launch(attempt))


def note_prefillable(core: CoreState, attempt: Attempt, line: QueueLine) -> None:
    """A run has begun on cores that were free: others can stand behind it, if it has all that it could ever get."""
    if lane_depth(line.durations) and len(attempt.grant.parts) == 1 and _has_one_size(line.request):
        core.prefillable[attempt] = None


def _has_one_size(request: ResourceRequest) -> bool:
    """Who asks for a range may get more later than the run before him has."""
    cores, nodes = request.cores, request.nodes
    return cores is not None and cores.least == cores.most and (nodes is None or nodes.least == nodes.most)


def _retract_late_lanes(core: CoreState, after: float = RETRACT_AFTER) -> None:
    """Those who stand behind runs that take longer wait in the queue again, once their hosts say so."""
    while core.lanes:
        lane = next(iter(core.lanes))
        if core.now - lane.since < after:
            return
        del core.lanes[lane]
        lane.retracted = True
        first, *others = lane.attempts
        durations = entry_of(first.job, first.position).line.durations
        durations.longest = max(core.now - lane.since, durations.longest or 0.0)
        core.effects.append(Retract(others))
