from __future__ import annotations

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.core import events
from qcg.pilotjob.description.requests import DrainNodes, ResumeNodes
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager


async def drain_nodes(manager: Manager, request: DrainNodes, counted: Counted | None) -> Answer:
    """Drain nodes. The answer is sent when that survives a crash of the manager."""
    return _carry_out(manager, events.DrainNodes(_names(request.nodes), printable(request.reason)), counted)


async def resume_nodes(manager: Manager, request: ResumeNodes, counted: Counted | None) -> Answer:
    return _carry_out(manager, events.ResumeNodes(_names(request.nodes)), counted)


def _carry_out(manager: Manager, event: events.Event, counted: Counted | None) -> Answer:
    data, remark = manager.engine.carry_out(event, counted)
    notice = data.pop("notice")
    return ok(data, " ".join(filter(None, [notice, remark])) or None)


def _names(nodes: list[str] | str) -> list[str]:
    return [nodes] if isinstance(nodes, str) else nodes
