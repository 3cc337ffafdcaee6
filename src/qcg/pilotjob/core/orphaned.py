"""Runs of an earlier manager that had cores, or whole nodes, which are not part of this run any more.

How they ended, or that they never began, their agents tell as ever. Only what still runs there is ended, and lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.host.records import Running


def register_existing(core: CoreState, attempt: Attempt) -> None:
    """A run goes on with what it was given, and holds of that what there is."""
    held = core.pool.claim(attempt.grant)
    if held != attempt.grant or any(part.node not in core.pool for part in attempt.grant.parts):
        core.orphaned[attempt] = held
    core.add_attempt(attempt)


def orphan_reason(core: CoreState, attempt: Attempt) -> str:
    """Of what a run had that is displaced: a sentence."""
    for part in attempt.grant.parts:
        if part.node not in core.pool:
            return "the node it ran on is not part of this run any more"
        spec = core.pool.node(part.node).spec
        if not set(part.cores) <= set(spec.cores):
            return f"{part.node} has fewer cores in this run now, and it ran on some that are gone"
    return "it had GPUs that are not part of this run any more"


def count_adopted(core: CoreState, live: Iterable[Running]) -> int:
    """How many of those that an agent has under way run, and may run on."""
    attempts = [core.attempts.get(running.id) for running in live if running.pid]
    return sum(attempt is not None and attempt not in core.orphaned for attempt in attempts)


def agent_node(core: CoreState, attempt: Attempt) -> str:
    """The node whose agent has it."""
    return core.agent_node(attempt.grant.parts[0].node)
