"""Who gets what: first come, first served, and what does not fit lets the next one try.

One pass costs as much as it starts jobs, plus the number of distinct requests: free resources only shrink during a
pass, so when the head of a line does not fit, nobody in that line does.
"""

from __future__ import annotations

import heapq

from qcg.pilotjob.core.effects import Launch
from qcg.pilotjob.core.records import Grant, Job, Run
from qcg.pilotjob.core.state import CoreState
from qcg.pilotjob.core.states import State


def schedule(core: CoreState) -> None:
    pool = core.pool
    if not pool.free_cores:
        return
    heads = core.queue.heads(pool.free_cores)
    while heads and pool.free_cores:
        _, position, _, line = heads[0]
        grant = pool.allocate(line.request) if line.least_cores <= pool.free_cores else None
        if grant is None:
            heapq.heappop(heads)
            continue
        _start(core, line.take(position), position, grant)
        head = line.head()
        if head is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, head)


def _start(core: CoreState, job: Job, position: int, grant: Grant) -> None:
    run = Run(job, position, job.attempts_of(position) + 1, grant, core.now)
    core.begin_run(run)
    core.enter(job, position, State.SCHEDULED, run)
    core.effects.append(Launch(run))
