"""Whether this manager can still start any of the unfinished jobs."""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.drain import drained_in_words
from qcg.pilotjob.core.feasibility import count, why_never
from qcg.pilotjob.core.hold import count_held
from qcg.pilotjob.core.job_states import QUEUED
from qcg.pilotjob.core.queue import entry_of
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.scheduler import time_left

NO_TIME = "not enough time is left"
UNREACHABLE_GRACE = 90.0
"""Minimum number of seconds to wait for an unreachable node, however small `patience` is: its agent may be starting."""


def why_over(core: CoreState, now: float) -> str | None:
    """Why none of the unfinished jobs can be started any more; None while one can be, or an attempt runs.

    An unreachable or drained node may come back, but the manager waits no longer than `patience` or
    `UNREACHABLE_GRACE` for it.
    It waits for remote hosts as long as they are away, because they do not end with an allocation.
    """
    if core.attempts or not core.unfinished or core.failure_limit.is_reached:
        return None  # at the limit of failures, the scheduler ends the manager
    for node in core.pool.local.nodes:
        if not node.reachable:
            core.unreachable_since.setdefault(node.spec.name, now)
    grace = max(core.patience, UNREACHABLE_GRACE)
    expected = [spec for spec in core.nodes if _is_expected(core, spec, now, grace)]
    left = time_left(core, now)
    reasons = set()
    for (_, position), (at, job) in core.paused.items():
        if core.state_of(job, position) is QUEUED:
            if at - now + entry_of(job, position).wall_time <= left:
                return None
            reasons.add(NO_TIME)
    for line in [line for line in core.queue.lines.values() if line.head() is not None]:
        in_time = left > 0 and line.head(left) is not None
        request = line.request
        never = core.pool.counters.why_never(request.extra)
        reason = (never or why_never(request, expected)) if in_time else NO_TIME
        if reason is None:
            return None
        reasons.add(reason)
    if NO_TIME in reasons:
        return NO_TIME
    if not reasons and core.holds and (held := count_held(core)):
        return f"{count(held, 'job')} {'is' if held == 1 else 'are'} held"
    if not reasons:
        return None
    drained = drained_in_words(core)
    return f"the remaining nodes cannot satisfy any request: {min(reasons)}" + (f"; {drained}" if drained else "")


def _is_expected(core: CoreState, spec: NodeSpec, now: float, grace: float) -> bool:
    """Whether a node is available, or may be soon: drained nodes are waited for as long as unreachable ones."""
    drained = core.health.drained.get(spec.name)
    if drained is not None and now - max(drained.since, core.health.since) >= grace:
        return False
    return bool(spec.group) or now - core.unreachable_since.get(spec.name, now) < grace
