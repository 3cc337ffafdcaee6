"""Drained nodes: attempts that run there continue, and no new attempt is placed there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import NodesDrained, Reply
from qcg.pilotjob.core.errors import CoreError
from qcg.pilotjob.core.events import DrainNodes, ResumeNodes
from qcg.pilotjob.core.feasibility import count
from qcg.pilotjob.core.prefill import retract_from
from qcg.pilotjob.core.records import DrainedNode, NodeFailures
from qcg.pilotjob.description.errors import quoted, suggestion

BY_USER = "on request"


def drain_nodes(core: CoreState, event: DrainNodes) -> None:
    """Drain nodes at the request of a user."""
    _check_names(core, event.nodes)
    nodes = [name for name in dict.fromkeys(event.nodes) if name not in core.health.drained]
    for name in nodes:
        _drain(core, name, event.reason or BY_USER)
    notice = f"{_named(nodes)} drained: {event.reason or BY_USER}{_consequence(core, nodes)}" if nodes else ""
    if notice:
        _notify(core, notice)
    core.effects.append(Reply({"drained": nodes, "notice": notice}))


def resume_nodes(core: CoreState, event: ResumeNodes) -> None:
    """Use nodes again, and forget their failures."""
    health = core.health
    absent = [name for name in event.nodes if name not in health.drained]
    _check_names(core, absent)
    nodes = [name for name in dict.fromkeys(event.nodes) if name in health.drained]
    for name in nodes:
        del health.drained[name]
        health.failures.pop(name, None)
        health.failed_at.pop(name, None)
        core.pool.set_drained(name, False)
    notice = f"{_named(nodes)} used again" if nodes else ""
    if notice:
        _notify(core, notice)
    core.effects.append(Reply({"resumed": nodes, "notice": notice}))


def drain_failing(core: CoreState, name: str) -> None:
    """Drain a node if it has failed too often, unless it is the last one that can be used."""
    health, failures = core.health, core.health.failures[name]
    if not health.limit or failures.jobs + failures.losses < health.limit or name in health.drained:
        return
    reason = _failures_in_words(failures)
    if _is_last(core, name):
        if not failures.notified:
            failures.notified = True
            _notify(core, f"{name} would be drained, but no other node can be used: {reason}")
        return
    _drain(core, name, reason)
    _notify(core, f"{name} is drained: {reason}{_consequence(core, [name])}")


def restore_drained(core: CoreState, drained: Mapping[str, DrainedNode]) -> None:
    """Restore the nodes that earlier managers have drained."""
    core.health.since = core.now
    for name, how in drained.items():
        core.health.drained[name] = how
        core.pool.set_drained(name, True)


def drained_in_words(core: CoreState, names: Iterable[str] = ()) -> str:
    """The drained nodes of the run, or those among `names`, as a clause; empty if there are none."""
    names = names or [node.spec.name for node in core.pool.nodes]
    drained = [name for name in names if name in core.health.drained]
    return f"{_named(drained)} drained ({core.health.drained[drained[0]].reason})" if drained else ""


def _drain(core: CoreState, name: str, reason: str) -> None:
    core.health.drained[name] = DrainedNode(core.now, reason)
    core.pool.set_drained(name, True)
    retract_from(core, name)


def _notify(core: CoreState, notice: str) -> None:
    core.effects.append(NodesDrained(dict(core.health.drained), notice))


def _is_last(core: CoreState, name: str) -> bool:
    """Whether no other node of the same kind can get attempts: remote hosts do not stand in for nodes of the run."""
    is_remote = bool(core.pool.node(name).spec.group)
    return not any(
        node.available and node.spec.name != name and bool(node.spec.group) == is_remote for node in core.pool.nodes
    )


def _consequence(core: CoreState, nodes: list[str]) -> str:
    text = f"; jobs that run there continue, and `qcg-pm nodes resume {' '.join(nodes)}` lets new ones start"
    if not any(node.available for node in core.pool.nodes):
        text += "; no node is left that can start jobs"
    return text


def _failures_in_words(failures: NodeFailures) -> str:
    parts = []
    if failures.jobs:
        parts.append(f"{count(failures.jobs, 'job')} in a row failed there and not on other nodes")
    if failures.losses:
        parts.append(f"it was lost {count(failures.losses, 'time')} under its jobs")
    return ", and ".join(parts)


def _check_names(core: CoreState, names: list[str]) -> None:
    for name in names:
        if name not in core.pool:
            known = tuple(node.spec.name for node in core.pool.nodes)
            listed = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
            raise CoreError(f"there is no node {quoted(name)}{suggestion(name, known) or f'; the nodes are {listed}'}")


def _named(nodes: list[str]) -> str:
    """The nodes as a subject with its verb."""
    return f"{nodes[0]} is" if len(nodes) == 1 else f"{', '.join(nodes[:-1])} and {nodes[-1]} are"
