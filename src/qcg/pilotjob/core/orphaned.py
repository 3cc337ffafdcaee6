"""Orphaned attempts: started by an earlier manager on cores or nodes that have left the run.

Their hosts report ends as usual. Only an attempt that still runs there is stopped, and lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.host.records import Running


def register_existing(core: CoreState, attempt: Attempt) -> None:
    """Register an attempt of an earlier manager; it holds the part of its grant that still exists."""
    held = core.pool.claim(attempt.grant)
    if held != attempt.grant or any(part.node not in core.pool for part in attempt.grant.parts):
        core.orphaned[attempt] = held
    core.add_attempt(attempt)


def orphan_reason(core: CoreState, attempt: Attempt) -> str:
    """Which part of the grant of an orphaned attempt is gone, as a sentence."""
    for part in attempt.grant.parts:
        if part.node not in core.pool:
            return "the node it ran on is not part of this run any more"
        spec = core.pool.node(part.node).spec
        if not set(part.cores) <= set(spec.cores):
            return f"{part.node} has fewer cores in this run now, and it ran on some that are gone"
    return "it had GPUs that are not part of this run any more"


def count_adopted(core: CoreState, live: Iterable[Running]) -> int:
    """The number of live attempts of a host that run and may run on."""
    attempts = [core.attempts.get(running.id) for running in live if running.pid]
    return sum(attempt is not None and attempt not in core.orphaned for attempt in attempts)


def host_node_of(core: CoreState, attempt: Attempt) -> str:
    """The node whose host has this attempt."""
    return core.host_node(attempt.grant.parts[0].node)
