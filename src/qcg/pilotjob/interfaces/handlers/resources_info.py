from __future__ import annotations

from typing import Any

from qcg.pilotjob.description.requests import ResourcesInfo
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.report.formats import timestamp


async def resources_info(manager: Manager, request: ResourcesInfo) -> Answer:
    return ok(resources(manager))


def resources(manager: Manager) -> dict[str, Any]:
    """Numbers of nodes and cores. The total counts all nodes, free cores are on reachable nodes; unreachable nodes are
    listed by name."""
    state = manager.engine.state
    used = state.pool.taken_cores + manager.system_cores
    total = state.pool.total_cores + manager.system_cores
    have: dict[str, Any] = {"total_nodes": len(state.pool.nodes), "total_cores": total, "used_cores": used}
    # On a single machine all nodes share one agent, which connects at once or never.
    away = (
        [node for node in state.pool.nodes if node.spec.name in state.unreachable_since]
        if manager.engine.site.allocation
        else []
    )
    have["free_cores"] = total - used - sum(node.nfree for node in away)
    if away:
        have["away"] = {
            node.spec.name: {
                "state": "lost" if node.spec.name in state.lost_nodes else "away",
                "since": timestamp(state.unreachable_since[node.spec.name]),
                "cores": len(node.spec.cores),
            }
            for node in away
        }
    return have
