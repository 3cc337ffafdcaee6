"""The scheduling pass: first come, first served, with backfill.

A job that does not fit is overtaken by jobs that do. If it is known when the first one of them can start, they may not
delay it: see `reservation`. Otherwise, when a queue line has not been served for `patience` seconds, nothing may
overtake it any more, so that a wide job gets its turn however many small ones arrive. This holds for each group of
nodes by itself: a remote host that is full keeps no job of other nodes waiting.

A job that needs counters of the run is started when they are free, too. Once it has waited too long for them, no later
job gets those counters; cores are not kept free for it until it has them.

The cost of a pass is the number of jobs it starts plus the number of distinct requests: free resources only shrink
during a pass, so when the first entry of a line does not fit, no other entry of that line does.
"""

from __future__ import annotations

import heapq
import math

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Launch, MoreToStart, NothingLeftToDo, WakeAt
from qcg.pilotjob.core.events import Schedule
from qcg.pilotjob.core.job_states import SCHEDULED
from qcg.pilotjob.core.node_group import NodeGroup
from qcg.pilotjob.core.prefill import note_prefillable, prefill_lanes, retract_prefilled
from qcg.pilotjob.core.queue import Head, QueueLine
from qcg.pilotjob.core.records import Attempt, Grant, Job
from qcg.pilotjob.core.reservation import Backfill
from qcg.pilotjob.core.retries import end_avoidances, wake_paused


def schedule(core: CoreState, event: Schedule) -> None:
    """Give free resources to waiting jobs, then prefill lanes."""
    if core.pauses:
        wake_paused(core)
    if core.health.avoidances:
        end_avoidances(core)
    left = time_left(core, core.now)
    if left <= 0:
        retract_prefilled(core)
        if core.failure_limit.is_reached and not (core.attempts or core.shutdown):
            core.effects.append(NothingLeftToDo(core.failure_limit.reason))
        return
    backfill = Backfill(core, left)
    blocked = _start_waiting(core, left, event.most, backfill)
    if backfill.waiting:
        _end_backfill(core, backfill)
    if blocked is None:
        core.effects.append(MoreToStart())
    else:
        prefill_lanes(core, left, blocked)


def _start_waiting(core: CoreState, left: float, most: float, backfill: Backfill) -> set[NodeGroup] | None:
    """Start waiting jobs that fit.

    Returns the groups in which a job has waited too long, does not fit and must not be overtaken; None when `most` jobs
    were started, so that more may fit.
    """
    blocked: set[NodeGroup] = set()
    if not core.pool.free_cores:
        return blocked
    counters, kept = core.pool.counters, set[str]()
    heads = core.queue.heads(core.now - core.patience, left)
    while heads:
        _, position, _, line = heads[0]
        target = line.target
        if line.is_plain and not (blocked or backfill.waiting):  # the usual case
            grant = target.allocate(line.request) if line.least_cores <= target.free_cores else None
        else:
            grant = _allocate(core, line, kept, blocked, backfill)
        if grant is None:
            closed = _pass_over(core, heapq.heappop(heads), kept, backfill)
            if closed is not None:
                blocked.add(closed)
                heads = [head for head in heads if not blocked.issuperset(head[3].target.groups)]
                heapq.heapify(heads)
            continue
        if grant.extra is not None:
            counters.take(grant.extra)
        if core.reservations:
            backfill.issued(grant)
        attempt = _start(core, line.take(position, core.now), position, grant)
        note_prefillable(core, attempt, line)
        most -= 1
        if most <= 0:
            return None
        following = line.head(left)
        if following is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, following)
        if not target.free_cores and not backfill.any_free_cores():
            break
    return blocked


def _allocate(
    core: CoreState, line: QueueLine, kept: set[str], blocked: set[NodeGroup], backfill: Backfill
) -> Grant | None:
    """Take a grant for the first job of a line, if it may start now. `kept`: named resources kept for other jobs."""
    if not _has_counters(core, line, kept, backfill):
        return None
    if line.avoid:
        return _allocate_elsewhere(core, line, blocked, backfill)
    if backfill.waiting:
        return backfill.allocate(line, blocked) if line.least_cores <= backfill.free_cores(line.target) else None
    return line.target.allocate_outside(blocked, line.request) if line.least_cores <= line.target.free_cores else None


def _has_counters(core: CoreState, line: QueueLine, kept: set[str], backfill: Backfill) -> bool:
    """Whether the named resources of the run that a line asks for are free and kept for no other job."""
    extra = line.request.extra
    return extra is None or (core.pool.counters.has(extra, kept) and backfill.keeper(extra) is None)


def _pass_over(core: CoreState, head: Head, kept: set[str], backfill: Backfill) -> NodeGroup | None:
    """Note that a job does not fit. Returns the group in which it must not be overtaken any more, if any."""
    line = head[3]
    if line.avoid:
        return None  # it waits for another node for a minute at most, and holds up nothing
    has_counters = _has_counters(core, line, kept, backfill)
    if has_counters and core.patience > 0:
        backfill.add_waiting(head)
    reserved = line.target.reserved_for(line.request) if line.served <= core.now - core.patience else None
    if reserved is None:
        return None
    extra = line.request.extra
    if extra is not None and core.pool.counters.why_never(extra) is None:
        kept.update(extra.names_of_run)
    return reserved if has_counters and not backfill.protects(line, reserved) else None


def _allocate_elsewhere(core: CoreState, line: QueueLine, blocked: set[NodeGroup], backfill: Backfill) -> Grant | None:
    """Take a grant for a job that avoids a node, if another one has enough for it."""
    if line.least_cores > backfill.free_cores(line.target):
        return None
    for group in line.target.groups:
        backfill.reservation(group)  # now, because the avoided node counts for the job that has the reservation
    with core.pool.without(line.avoid):
        if backfill.waiting:
            return backfill.allocate(line, blocked)
        return line.target.allocate_outside(blocked, line.request)


def _end_backfill(core: CoreState, backfill: Backfill) -> None:
    """Release resources hidden by reservations, and run a pass when an expected end that was learned has passed."""
    at = backfill.close()
    if at < math.inf:
        core.effects.append(WakeAt(min(at, core.pauses[0][0]) if core.pauses else at))


def time_left(core: CoreState, now: float) -> float:
    """Seconds that a job started now may take; 0 or less when nothing may be started."""
    if core.shutdown or core.failure_limit.is_reached:
        return 0.0
    return math.inf if core.deadline is None else core.deadline - now


def _start(core: CoreState, job: Job, position: int, grant: Grant) -> Attempt:
    attempt = Attempt(job, position, job.last_number_of(position) + 1, grant, core.now)
    core.add_attempt(attempt)
    core.transition(job, position, SCHEDULED, attempt)
    core.effects.append(Launch(attempt))
    return attempt
