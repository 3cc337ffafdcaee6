"""Jobs and iterations that wait with a demand other than that of their description, as after a retry that grows."""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.queue import Demand, QueueEntry, make_entry, own_entry
from qcg.pilotjob.core.records import Job


def set_demand(core: CoreState, job: Job, position: int, demand: Demand) -> None:
    """Give a position a queue entry with this demand. It is not ready until it is made ready again.

    All positions of a job with the same demand share one entry, so that they start in the order of their indices.
    """
    own = own_entry(job, position)
    if job.iterations is None:
        if own.demand != demand:
            job.entries = (_entry(core, job, demand),)
        return
    iterations = job.iterations
    if iterations.apart is None:
        iterations.apart = {}
    if own.demand == demand:
        iterations.apart[position] = own
        return
    if iterations.apart_by_demand is None:
        iterations.apart_by_demand = {}
    entry = iterations.apart_by_demand.get(demand)
    if entry is None:
        entry = iterations.apart_by_demand[demand] = _entry(core, job, demand)
    iterations.apart[position] = entry


def _entry(core: CoreState, job: Job, demand: Demand) -> QueueEntry:
    line = core.queue.line(demand.request, demand.wall_time, demand.avoid)
    return make_entry(job, line, demand.wall_time, rank=demand.rank)
