"""Work sent ahead, so that no core waits for a message between two short jobs.

A job that waits for just what a run under way has is given these cores before that run is over: it stands behind it in
a lane, and their host starts it as soon as they are free. That changes nothing in who gets what: only the job that is
first of all that wait stands behind others, so nobody is overtaken, and it would have been given those cores anyway,
a little later. It may wait longer than it would have waited for other cores, but not by much: only where jobs have been
short, only for so many that all are over soon, and those behind a run that takes unexpectedly long are called back.
"""

from __future__ import annotations

import heapq

from qcg.pilotjob.core.effects import Launch, Retract
from qcg.pilotjob.core.finalize import entry_of
from qcg.pilotjob.core.queue import Line, Pace
from qcg.pilotjob.core.records import Attempt, Job, Lane
from qcg.pilotjob.core.state import CoreState
from qcg.pilotjob.core.states import SCHEDULED
from qcg.pilotjob.description.model import Request
from qcg.pilotjob.host.records import Ended

SHORT = 0.1
"""Seconds within which every run of late must have been over, so that others may stand behind the next ones."""
HORIZON = 0.2
"""Seconds within which all that stand behind a run are expected to be over."""
MOST_BEHIND = 256
MOST_ON_NODE = 512
"""Unless each lane has one: more than a host can start while a message is on its way."""
LATE = 0.5
"""Seconds after which a run keeps those behind it waiting too long."""
MEMORY = 0.9
"""How much of what is known from earlier runs is kept after another one."""


def learn(attempt: Attempt, record: Ended) -> None:
    """From how long a run took, what to expect of the next ones that ask for the same."""
    if record.started:
        pace = entry_of(attempt.job, attempt.position).line.pace
        seconds = max(record.at - record.started, 0.0)
        if pace.longest is None:
            pace.longest = pace.usual = seconds
        else:
            pace.longest = max(seconds, MEMORY * pace.longest)
            pace.usual += (1 - MEMORY) * (seconds - pace.usual)


def behind(pace: Pace) -> int:
    """How many may stand behind one run of this pace: none where one could be long, and else as many as are usually
    over soon."""
    if pace.longest is None or pace.longest > SHORT:
        return 0
    return MOST_BEHIND if pace.usual * MOST_BEHIND <= HORIZON else int(HORIZON / pace.usual)


def send_ahead(core: CoreState, left: float) -> None:
    """After a scheduling pass: whoever is first of those that wait goes behind a run that has what it wants."""
    having_room, core.having_room = core.having_room, {}
    places = _places(core, having_room)
    _call_back(core)
    if not places:
        return
    overdue = core.now - core.patience
    heads = core.queue.heads(core.pool.total_cores, overdue, left)
    if any(line.served <= overdue for _, _, _, line in heads):
        return
    while heads:
        _, position, _, line = heads[0]
        lanes = places.get(line.pace)
        if not lanes:
            return
        _stand_behind(core, line.take(position, core.now), position, lanes)
        head = line.head(left)
        if head is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, head)


def send_nobody(core: CoreState, *, soon_over: bool) -> None:
    """After a pass in which somebody must not be overtaken; or, when all is `soon_over`, nothing may be started at all,
    also not by those who stand behind others already."""
    having_room, core.having_room = core.having_room, {}
    for attempt in having_room:
        if attempt.lane is not None:
            attempt.lane.since = core.now
    _call_back(core, 0.0 if soon_over else LATE)


def _places(core: CoreState, having_room: dict[Attempt, None]) -> dict[Pace, list[tuple[int, int, Attempt, int]]]:
    """For those who ask for the same, a heap of runs to stand behind: (how many do, a number, the run, how many
    may)."""
    places: dict[Pace, list[tuple[int, int, Attempt, int]]] = {}
    for number, attempt in enumerate(having_room):
        node = core.pool.node(attempt.grant.parts[0].node)
        lane = attempt.lane
        if lane is not None:
            lane.since = core.now
        if attempt.killed or core.attempts.get(attempt.id) is not attempt or (lane is not None and lane.retracted):
            continue
        if not node.available or node.contested:
            continue
        pace = entry_of(attempt.job, attempt.position).line.pace
        lanes_on_node = len(node.spec.cores) // len(attempt.grant.parts[0].cores)
        most = min(behind(pace), max(MOST_ON_NODE // lanes_on_node, 1))
        standing = 0 if lane is None else len(lane.attempts) - 1
        if standing < most:
            places.setdefault(pace, []).append((standing, number, attempt, most))
    for heap in places.values():
        heapq.heapify(heap)
    return places


def _stand_behind(core: CoreState, job: Job, position: int, lanes: list[tuple[int, int, Attempt, int]]) -> None:
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
    core.begin_run(attempt)
    core.enter(job, position, SCHEDULED, attempt)
    core.effects.append(Launch(attempt))


def may_have_room(core: CoreState, attempt: Attempt, line: Line) -> None:
    """A run has begun on cores that were free: others can stand behind it, if it has all that it could ever get."""
    if behind(line.pace) and len(attempt.grant.parts) == 1 and _has_one_size(line.request):
        core.having_room[attempt] = None


def _has_one_size(request: Request) -> bool:
    """Who asks for a range may get more later than the run before him has."""
    cores, nodes = request.cores, request.nodes
    return cores is not None and cores.least == cores.most and (nodes is None or nodes.least == nodes.most)


def _call_back(core: CoreState, after: float = LATE) -> None:
    """Those who stand behind runs that take longer wait in the queue again, once their hosts say so."""
    while core.lanes:
        lane = next(iter(core.lanes))
        if core.now - lane.since < after:
            return
        del core.lanes[lane]
        lane.retracted = True
        first, *others = lane.attempts
        pace = entry_of(first.job, first.position).line.pace
        pace.longest = max(core.now - lane.since, pace.longest or 0.0)
        core.effects.append(Retract(others))
