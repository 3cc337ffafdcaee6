"""Who gets what: first come, first served, and what does not fit lets the next one try.

But not for ever: a line that was not served for as long as `patience` lets nobody overtake it any more, so that a wide
job gets its turn however many small ones come after it.

One pass costs as much as it starts jobs, plus the number of distinct requests: free resources only shrink during a
pass, so when the head of a line does not fit, nobody in that line does.
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
    """What a pass has given of what is free."""

    ALL = 0
    """To all who can have it."""
    AS_ALLOWED = 1
    """To as many as it may start; there may be more."""
    SOME = 2
    """And the rest to nobody: somebody must not be overtaken."""


def schedule(core: CoreState, event: Schedule) -> None:
    """Give what is free, and then what will soon be."""
    left = time_left(core, core.now)
    given = _start_waiting(core, left, event.most) if left > 0 else PassResult.SOME
    if given is PassResult.ALL:
        prefill_lanes(core, left)
    elif given is PassResult.AS_ALLOWED:
        core.effects.append(MoreToStart())
    else:
        skip_prefill(core, soon_over=left <= 0)


def _start_waiting(core: CoreState, left: float, most: float) -> PassResult:
    pool = core.pool
    if not pool.free_cores:
        return PassResult.ALL
    overdue = core.now - core.patience
    heads = core.queue.heads(pool.free_cores, overdue, left)
    while heads and pool.free_cores:
        _, position, _, line = heads[0]
        grant = pool.allocate(line.request) if line.least_cores <= pool.free_cores else None
        if grant is None:
            if line.served <= overdue and _could_be_given(core, line.request):
                return PassResult.SOME
            heapq.heappop(heads)
            continue
        attempt = _start(core, line.take(position, core.now), position, grant)
        note_prefillable(core, attempt, line)
        most -= 1
        if most <= 0:
            return PassResult.AS_ALLOWED
        head = line.head(left)
        if head is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, head)
    return PassResult.ALL


def time_left(core: CoreState, now: float) -> float:
    """How long what is started now may take; nothing is when that is not above 0."""
    if core.suspended:
        return 0.0
    return math.inf if core.deadline is None else core.deadline - now


def _could_be_given(core: CoreState, request: ResourceRequest) -> bool:
    """By the nodes that are there now: it makes no sense to keep cores free for what needs a node that is gone."""
    return why_never(request, [node.spec for node in core.pool.nodes if node.available]) is None


def _start(core: CoreState, job: Job, position: int, grant: Grant) -> Attempt:
    attempt = Attempt(job, position, job.attempts_of(position) + 1, grant, core.now)
    core.add_attempt(attempt)
    core.transition(job, position, SCHEDULED, attempt)
    core.effects.append(Launch(attempt))
    return attempt
