"""The scheduling pass: first come, first served, with backfill.

A job that does not fit is overtaken by jobs that do. But when a queue line has not been served for `patience` seconds,
nothing may overtake it any more, so that a wide job gets its turn however many small ones arrive.

The cost of a pass is the number of jobs it starts plus the number of distinct requests: free resources only shrink
during a pass, so when the first entry of a line does not fit, no other entry of that line does.
"""

from __future__ import annotations

import heapq
import math
from enum import Enum

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Launch, MoreToStart
from qcg.pilotjob.core.events import Schedule
from qcg.pilotjob.core.feasibility import why_never
from qcg.pilotjob.core.job_states import SCHEDULED
from qcg.pilotjob.core.prefill import note_prefillable, prefill_lanes, skip_prefill
from qcg.pilotjob.core.records import Attempt, Grant, Job
from qcg.pilotjob.description.model import ResourceRequest


class PassResult(Enum):
    """How a scheduling pass ended."""

    COMPLETE = 0
    """Every job that fits was started."""
    LIMIT_REACHED = 1
    """The limit of starts was reached; more jobs may fit."""
    BLOCKED = 2
    """A job that has waited too long does not fit and must not be overtaken."""


def schedule(core: CoreState, event: Schedule) -> None:
    """Give free resources to waiting jobs, then prefill lanes."""
    left = time_left(core, core.now)
    result = _start_waiting(core, left, event.most) if left > 0 else PassResult.BLOCKED
    if result is PassResult.COMPLETE:
        prefill_lanes(core, left)
    elif result is PassResult.LIMIT_REACHED:
        core.effects.append(MoreToStart())
    else:
        skip_prefill(core, soon_over=left <= 0)


def _start_waiting(core: CoreState, left: float, most: float) -> PassResult:
    pool = core.pool
    if not pool.free_cores:
        return PassResult.COMPLETE
    overdue = core.now - core.patience
    heads = core.queue.heads(pool.free_cores, overdue, left)
    while heads and pool.free_cores:
        _, position, _, line = heads[0]
        grant = pool.allocate(line.request) if line.least_cores <= pool.free_cores else None
        if grant is None:
            if line.served <= overdue and _is_possible_now(core, line.request):
                return PassResult.BLOCKED
            heapq.heappop(heads)
            continue
        attempt = _start(core, line.take(position, core.now), position, grant)
        note_prefillable(core, attempt, line)
        most -= 1
        if most <= 0:
            return PassResult.LIMIT_REACHED
        head = line.head(left)
        if head is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, head)
    return PassResult.COMPLETE


def time_left(core: CoreState, now: float) -> float:
    """Seconds that a job started now may take; 0 or less when nothing may be started."""
    if core.suspended:
        return 0.0
    return math.inf if core.deadline is None else core.deadline - now


def _is_possible_now(core: CoreState, request: ResourceRequest) -> bool:
    """Whether the available nodes can satisfy the request: no cores are kept free for a node that is away."""
    return why_never(request, [node.spec for node in core.pool.nodes if node.available]) is None


def _start(core: CoreState, job: Job, position: int, grant: Grant) -> Attempt:
    attempt = Attempt(job, position, job.attempts_of(position) + 1, grant, core.now)
    core.add_attempt(attempt)
    core.transition(job, position, SCHEDULED, attempt)
    core.effects.append(Launch(attempt))
    return attempt
