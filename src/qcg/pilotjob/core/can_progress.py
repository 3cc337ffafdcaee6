"""Whether this manager can still start any of the unfinished jobs."""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.feasibility import why_never
from qcg.pilotjob.core.scheduler import time_left

NO_TIME = "not enough time is left"
UNREACHABLE_GRACE = 90.0
"""Minimum number of seconds to wait for an unreachable node, however small `patience` is: its agent may be starting."""


def why_over(core: CoreState, now: float) -> str | None:
    """Why none of the unfinished jobs can be started any more; None while one can be, or an attempt runs.

    An unreachable node may come back, but the manager waits no longer than `patience` or `UNREACHABLE_GRACE` for it.
    """
    if core.attempts or not core.unfinished:
        return None
    for node in core.pool.nodes:
        if not node.available:
            core.unreachable_since.setdefault(node.spec.name, now)
    grace = max(core.patience, UNREACHABLE_GRACE)
    expected = [spec for spec in core.nodes if now - core.unreachable_since.get(spec.name, now) < grace]
    left = time_left(core, now)
    reasons = set()
    for line in [line for line in core.queue.lines.values() if line.head() is not None]:
        in_time = left > 0 and line.head(left) is not None
        reason = why_never(line.request, expected) if in_time else NO_TIME
        if reason is None:
            return None
        reasons.add(reason)
    if NO_TIME in reasons:
        return NO_TIME
    return f"the remaining nodes cannot satisfy any request: {min(reasons)}" if reasons else None
