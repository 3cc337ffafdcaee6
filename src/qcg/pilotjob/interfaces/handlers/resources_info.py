from __future__ import annotations

from typing import Any

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.node_group import NodeGroup
from qcg.pilotjob.core.resources import Node
from qcg.pilotjob.description.model import WHOLE_GPU
from qcg.pilotjob.description.requests import ResourcesInfo
from qcg.pilotjob.executors.base import HostState
from qcg.pilotjob.interfaces.handlers.hosts import state_fields
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.report.formats import timestamp


async def resources_info(manager: Manager, request: ResourcesInfo) -> Answer:
    return ok(resources(manager))


def resources(manager: Manager) -> dict[str, Any]:
    """Numbers of nodes and cores. The total counts all nodes, free cores are on nodes that can start jobs.
    Unreachable and drained nodes are listed by name. Remote hosts are listed by name as well, and do not count."""
    state = manager.engine.state
    nodes = state.pool.local.nodes
    used = state.pool.taken_cores + manager.system_cores
    total = state.pool.total_cores + manager.system_cores
    have: dict[str, Any] = {"total_nodes": len(nodes), "total_cores": total, "used_cores": used}
    # On a single machine all nodes share one agent, which connects at once or never.
    away = (
        [node for node in nodes if node.spec.name in state.unreachable_since] if manager.engine.site.allocation else []
    )
    drained = [node for node in nodes if node.drained]
    have["free_cores"] = total - used - sum(node.nfree for node in {*away, *drained})
    if away:
        have["away"] = {
            node.spec.name: {
                "state": "lost" if node.spec.name in state.lost_nodes else "away",
                "since": timestamp(state.unreachable_since[node.spec.name]),
                "cores": len(node.spec.cores),
            }
            for node in away
        }
    named = {**_run_counters(state), **_node_counters(nodes)}
    if named:
        have["named"] = named
    if any(node.spec.gpus for node in nodes):
        have["gpus"] = _gpus(nodes)
    if any(node.drained for node in state.pool.nodes):
        have["drained"] = {node.spec.name: _drained(state, node) for node in state.pool.nodes if node.drained}
    if state.pool.hosts:
        states = manager.engine.executor.host_states()
        have["hosts"] = {host.name: _host(host, states[host.name]) for host in state.pool.hosts}
    return have


def _run_counters(state: CoreState) -> dict[str, Any]:
    """The named counters of the run."""
    counters = state.pool.counters
    return {name: _counts(total, counters.free[name]) for name, total in counters.totals.items()}


def _node_counters(nodes: list[Node]) -> dict[str, Any]:
    """The named counters of nodes: of all of them together, and of each."""
    found: dict[str, Any] = {}
    for node in nodes:
        for name, total in node.spec.counters:
            found.setdefault(name, {})[node.spec.name] = _counts(total, node.counters[name])
    return {
        name: {
            **{key: sum(one[key] for one in by_node.values()) for key in ("total", "used", "free")},
            "nodes": by_node,
        }
        for name, by_node in found.items()
    }


def _counts(total: int, free: int) -> dict[str, int]:
    return {"total": total, "used": total - free, "free": max(free, 0)}


def _gpus(nodes: list[Node]) -> dict[str, Any]:
    """The GPUs of all nodes; parts that are in use count as fractions."""
    total = sum(len(node.spec.gpus) for node in nodes)
    taken = sum(sum(node.gpus_taken.values()) for node in nodes)
    return {"total": total, "used": taken / WHOLE_GPU, "free": (total * WHOLE_GPU - taken) / WHOLE_GPU}


def _drained(state: CoreState, node: Node) -> dict[str, Any]:
    how = state.health.drained[node.spec.name]
    return {
        "since": timestamp(how.since),
        "reason": how.reason,
        "cores": len(node.spec.cores),
        "used": len(node.spec.cores) - node.nfree,
    }


def _host(host: NodeGroup, state: HostState) -> dict[str, Any]:
    """The cores of a remote host, or the job slots of a host behind a batch system, and its state as `hosts` has it."""
    told = state_fields(state)
    slots = {"slots": True} if any(node.spec.slots for node in host.nodes) else {}
    named = {"named": _node_counters(host.nodes)} if any(node.spec.counters for node in host.nodes) else {}
    return {
        "cores": host.total_cores,
        "used": host.taken_cores,
        "free": host.free_cores,
        **{key: told[key] for key in ("state", "since", "error") if key in told},
        **slots,
        **named,
    }
