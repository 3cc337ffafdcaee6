"""Runs of an earlier manager that had cores, or whole nodes, which are not part of this run any more.

How they ended, or that they never began, their agents tell as ever. Only what still runs there is ended, and lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from qcg.pilotjob.core.records import Run
from qcg.pilotjob.core.state import CoreState
from qcg.pilotjob.host.records import Running


def take_up(core: CoreState, run: Run) -> None:
    """A run goes on with what it was given, and holds of that what there is."""
    held = core.pool.claim(run.grant)
    if held != run.grant or any(part.node not in core.pool for part in run.grant.parts):
        core.displaced[run] = held
    core.begin_run(run)


def what_is_gone(core: CoreState, run: Run) -> str:
    """Of what a run had that is displaced: a sentence."""
    for part in run.grant.parts:
        if part.node not in core.pool:
            return "the node it ran on is not part of this run any more"
        spec = core.pool.node(part.node).spec
        if not set(part.cores) <= set(spec.cores):
            return f"{part.node} has fewer cores in this run now, and it ran on some that are gone"
    return "it had GPUs that are not part of this run any more"


def go_on(core: CoreState, live: Iterable[Running]) -> int:
    """How many of those that an agent has under way run, and may run on."""
    runs = [core.runs.get(running.id) for running in live if running.pid]
    return sum(run is not None and run not in core.displaced for run in runs)


def node_of(core: CoreState, run: Run) -> str:
    """The node whose agent has it."""
    return core.asked(run.grant.parts[0].node)
