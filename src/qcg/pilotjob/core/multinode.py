"""Cleanup of attempts on all their nodes: multi-node attempts, and strays that belong to no job.

The node that started an attempt reports its exit code, but that is not enough: a launcher may exit with 0 although one
of its nodes has died, and processes may be left on the others. So each node is asked to kill remaining processes. Until
all nodes have answered, the attempt holds its resources and its job is not final. If one of the nodes is lost
meanwhile, the attempt is lost."""

from __future__ import annotations

from qcg.pilotjob.core.attempt_end import finish_attempt, lose_attempt
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import KillStray, Stop, Sweep
from qcg.pilotjob.core.events import AttemptSwept
from qcg.pilotjob.core.records import Attempt, Cleanup, Grant, NodePart
from qcg.pilotjob.description.model import ResourceRequest
from qcg.pilotjob.host.records import Ended, EndReason, NodeGrant, Running


def ended_on_first_node(core: CoreState, attempt: Attempt, record: Ended) -> None:
    """Handle the end record of a multi-node attempt from its first node."""
    cleanup = core.cleanups.get(attempt.id) or _begin(core, attempt)
    cleanup.ended = record
    _first_is_done(core, cleanup, record.at)


def stray_ended(core: CoreState, cleanup: Cleanup) -> None:
    _first_is_done(core, cleanup)


def attempt_swept(core: CoreState, event: AttemptSwept) -> None:
    cleanup = core.cleanups.get(event.attempt_id)
    if cleanup is not None:
        cleanup.pending.discard(event.node)
        _finish_if_over(core, cleanup)


def nodes_of_attempt_lost(core: CoreState, attempt: Attempt, message: str) -> None:
    """Handle the loss of nodes, already in `core.lost_nodes`, that a multi-node attempt runs on."""
    cleanup = core.cleanups.get(attempt.id)
    if cleanup is None:
        cleanup = _begin(core, attempt)
        if cleanup.first not in core.lost_nodes:
            core.effects.append(Stop(attempt, EndReason.LOST, message))
    _nodes_lost(core, cleanup, message)


def strays_lost(core: CoreState) -> None:
    for cleanup in [cleanup for cleanup in core.cleanups.values() if cleanup.attempt is None]:
        _nodes_lost(core, cleanup, "")


def kill_stray(core: CoreState, running: Running, nodes: list[str]) -> None:
    """Kill a stray attempt that a host of these nodes runs, and hold its resources until it has ended."""
    granted = running.grant
    first = granted[0][0] if granted and granted[0][0] in nodes else nodes[0]
    if running.id not in core.cleanups:
        held = core.pool.claim(grant_of(granted))
        waiting = {part.node for part in held.parts if part.node in core.pool} - core.lost_nodes | {first}
        core.cleanups[running.id] = Cleanup(running.id, held, first, waiting, None)
    core.effects.append(KillStray(running.id, first))


def first_node_reported(core: CoreState, cleanup: Cleanup, running: Running | None) -> None:
    """Handle the report of the host of the first node; `running` is None if the attempt is over there."""
    if running is None:
        _first_is_done(core, cleanup)
        return
    cleanup.pending.add(cleanup.first)  # the node may have been given up as lost meanwhile
    if cleanup.attempt is None:
        core.effects.append(KillStray(cleanup.id, cleanup.first))
    else:
        core.effects.append(Stop(cleanup.attempt, EndReason.LOST, cleanup.lost_message))


def repeat_sweeps(core: CoreState, nodes: set[str]) -> None:
    """Repeat sweeps on nodes whose hosts have connected again.

    The earlier sweep may not have reached them. A node that was given up may have got new processes as long as the
    attempt was not over on its first node.
    """
    for cleanup in core.cleanups.values():
        others = {part.node for part in cleanup.grant.parts if part.node in nodes} - {cleanup.first}
        cleanup.pending |= others
        if cleanup.first not in cleanup.pending:
            _sweep(core, cleanup, others)


def grant_of(granted: list[NodeGrant], request: ResourceRequest | None = None) -> Grant:
    """The grant that a host reports, with the part of the request that hosts do not know; None: of no known job."""
    memory, extra = (0, None) if request is None else (request.memory, request.extra)
    return Grant(tuple(NodePart(node, tuple(cores), tuple(gpus), memory) for node, cores, gpus in granted), extra)


def _begin(core: CoreState, attempt: Attempt) -> Cleanup:
    nodes = [core.host_node(part.node) for part in attempt.grant.parts]
    cleanup = core.cleanups[attempt.id] = Cleanup(attempt.id, attempt.grant, nodes[0], set(nodes), attempt)
    return cleanup


def _first_is_done(core: CoreState, cleanup: Cleanup, at: float | None = None) -> None:
    if cleanup.first in cleanup.pending:
        cleanup.pending.discard(cleanup.first)
        _sweep(core, cleanup, cleanup.pending)
    _finish_if_over(core, cleanup, at)


def _nodes_lost(core: CoreState, cleanup: Cleanup, message: str) -> None:
    missing = cleanup.pending & core.lost_nodes
    if missing:
        cleanup.lost_message = cleanup.lost_message or message
        cleanup.pending -= missing
        if cleanup.first in missing:
            _sweep(core, cleanup, cleanup.pending)
        _finish_if_over(core, cleanup)


def _sweep(core: CoreState, cleanup: Cleanup, nodes: set[str]) -> None:
    core.effects += [Sweep(cleanup.id, node) for node in sorted(nodes)]


def _finish_if_over(core: CoreState, cleanup: Cleanup, at: float | None = None) -> None:
    """Finish the attempt when no node is pending. `at`: the end by the clock of its host; None: it ended now, with the
    last sweep."""
    if cleanup.pending:
        return
    del core.cleanups[cleanup.id]
    attempt, record = cleanup.attempt, cleanup.ended
    if attempt is None:
        core.pool.release(cleanup.grant)
    elif record is None or (cleanup.lost_message and record.reason in (EndReason.EXIT, EndReason.CANCEL)):
        lose_attempt(core, attempt, cleanup.lost_message, at)
    else:
        finish_attempt(core, attempt, record, at)
