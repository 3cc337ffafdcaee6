from __future__ import annotations

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.core import events
from qcg.pilotjob.description.requests import DrainNodes
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager


async def drain_nodes(manager: Manager, request: DrainNodes, counted: Counted | None) -> Answer:
    """Drain nodes. The answer is sent when that survives a crash of the manager."""
    return change_nodes(manager, events.DrainNodes(names(request.nodes), printable(request.reason)), counted)


def change_nodes(manager: Manager, event: events.Event, counted: Counted | None) -> Answer:
    data, remark = manager.engine.carry_out(event, counted)
    notice = data.pop("notice")
    return ok(data, " ".join(filter(None, [notice, remark])) or None)


def names(nodes: list[str] | str) -> list[str]:
    return [nodes] if isinstance(nodes, str) else nodes
