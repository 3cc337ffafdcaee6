"""Runs on several nodes, and runs that nobody wants: when they are over everywhere.

The node that started a run tells how it ended, and that is not the whole truth: a launcher may say that all went well
when one of its nodes has died, and processes may be left on the others. So each of them is asked to end what is left.
Until all have answered, the run holds its resources and its job is not told to have ended; and where one of them is
lost instead, so is the run.
"""

from __future__ import annotations

from qcg.pilotjob.core.effects import KillStray, Stop, Sweep
from qcg.pilotjob.core.events import AttemptSwept
from qcg.pilotjob.core.finishing import finish, lose
from qcg.pilotjob.core.records import Attempt, Grant, Leaving, NodePart
from qcg.pilotjob.core.state import CoreState
from qcg.pilotjob.host.records import Ended, NodeGrant, Running


def ended_on_first(core: CoreState, attempt: Attempt, record: Ended) -> None:
    """Of a run that spans nodes."""
    leaving = core.leaving.get(attempt.id) or _begin(core, attempt)
    leaving.ended = record
    _first_is_done(core, leaving)


def stray_ended(core: CoreState, leaving: Leaving) -> None:
    _first_is_done(core, leaving)


def attempt_swept(core: CoreState, event: AttemptSwept) -> None:
    leaving = core.leaving.get(event.attempt_id)
    if leaving is not None:
        leaving.waiting.discard(event.node)
        _finish_if_over(core, leaving)


def nodes_of_run_lost(core: CoreState, attempt: Attempt, message: str) -> None:
    """Some nodes of a run that spans nodes are in `core.lost` now."""
    leaving = core.leaving.get(attempt.id)
    if leaving is None:
        leaving = _begin(core, attempt)
        if leaving.first not in core.lost:
            core.effects.append(Stop(attempt, "lost", message))
    _nodes_lost(core, leaving, message)


def strays_lost(core: CoreState) -> None:
    for leaving in [leaving for leaving in core.leaving.values() if leaving.attempt is None]:
        _nodes_lost(core, leaving, "")


def evict(core: CoreState, running: Running, nodes: list[str]) -> None:
    """An agent of these nodes runs what no job wants: it is ended, and what it has is given to nobody before that."""
    granted = running.grant
    first = granted[0][0] if granted and granted[0][0] in nodes else nodes[0]
    if running.id not in core.leaving:
        held = core.pool.claim(grant_of(granted, 0))
        waiting = {part.node for part in held.parts if part.node in core.pool} - core.lost | {first}
        core.leaving[running.id] = Leaving(running.id, held, first, waiting, None)
    core.effects.append(KillStray(running.id, first))


def reported(core: CoreState, leaving: Leaving, running: Running | None) -> None:
    """What the agent of its first node has of it."""
    if running is None:
        _first_is_done(core, leaving)
        return
    leaving.waiting.add(leaving.first)  # it may have been given up meanwhile
    if leaving.attempt is None:
        core.effects.append(KillStray(leaving.id, leaving.first))
    else:
        core.effects.append(Stop(leaving.attempt, "lost", leaving.lost))


def ask_again(core: CoreState, nodes: set[str]) -> None:
    """The agents of these nodes are there again. What they were asked may not have reached them; and a node that was
    given up may have got something since, as long as the run is not over on its first one."""
    for leaving in core.leaving.values():
        others = {part.node for part in leaving.grant.parts if part.node in nodes} - {leaving.first}
        leaving.waiting |= others
        if leaving.first not in leaving.waiting:
            _sweep(core, leaving, others)


def grant_of(granted: list[NodeGrant], memory: int) -> Grant:
    return Grant(tuple(NodePart(node, tuple(cores), tuple(gpus), memory) for node, cores, gpus in granted))


def _begin(core: CoreState, attempt: Attempt) -> Leaving:
    nodes = [core.asked(part.node) for part in attempt.grant.parts]
    leaving = core.leaving[attempt.id] = Leaving(attempt.id, attempt.grant, nodes[0], set(nodes), attempt)
    return leaving


def _first_is_done(core: CoreState, leaving: Leaving) -> None:
    if leaving.first in leaving.waiting:
        leaving.waiting.discard(leaving.first)
        _sweep(core, leaving, leaving.waiting)
    _finish_if_over(core, leaving)


def _nodes_lost(core: CoreState, leaving: Leaving, message: str) -> None:
    missing = leaving.waiting & core.lost
    if missing:
        leaving.lost = leaving.lost or message
        leaving.waiting -= missing
        if leaving.first in missing:
            _sweep(core, leaving, leaving.waiting)
        _finish_if_over(core, leaving)


def _sweep(core: CoreState, leaving: Leaving, nodes: set[str]) -> None:
    core.effects += [Sweep(leaving.id, node) for node in sorted(nodes)]


def _finish_if_over(core: CoreState, leaving: Leaving) -> None:
    if leaving.waiting:
        return
    del core.leaving[leaving.id]
    attempt, record = leaving.attempt, leaving.ended
    if attempt is None:
        core.pool.release(leaving.grant)
    elif record is None or (leaving.lost and record.reason in ("exit", "cancel")):
        lose(core, attempt, leaving.lost)
    else:
        finish(core, attempt, record)
