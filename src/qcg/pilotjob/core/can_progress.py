"""Can this manager still do anything for the jobs that are left?"""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.feasibility import why_never
from qcg.pilotjob.core.scheduler import time_left

NO_TIME = "not enough time is left"
HOPE = 90.0
"""Seconds for which a node that is away is hoped for, however small `patience` is: its agent may just be starting."""


def why_over(core: CoreState, now: float) -> str | None:
    """Why none of the jobs that are left can be started any more: a sentence, and None while one could be, or runs.

    A node that is away may come back; but nothing waits for it alone longer than `patience`, or than `HOPE`.
    """
    if core.attempts or not core.unfinished:
        return None
    for node in core.pool.nodes:
        if not node.available:
            core.unreachable_since.setdefault(node.spec.name, now)
    hope = max(core.patience, HOPE)
    hoped_for = [spec for spec in core.nodes if now - core.unreachable_since.get(spec.name, now) < hope]
    left = time_left(core, now)
    reasons = set()
    for line in [line for line in core.queue.lines.values() if line.head() is not None]:
        in_time = left > 0 and line.head(left) is not None
        reason = why_never(line.request, hoped_for) if in_time else NO_TIME
        if reason is None:
            return None
        reasons.add(reason)
    if NO_TIME in reasons:
        return NO_TIME
    return f"the nodes that are left cannot give what is wanted: {min(reasons)}" if reasons else None
