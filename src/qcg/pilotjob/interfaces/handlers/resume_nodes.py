from __future__ import annotations

from qcg.pilotjob.core import events
from qcg.pilotjob.description.requests import ResumeNodes
from qcg.pilotjob.interfaces.handlers.drain_nodes import change_nodes, names
from qcg.pilotjob.interfaces.replies import Answer
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager


async def resume_nodes(manager: Manager, request: ResumeNodes, counted: Counted | None) -> Answer:
    """Start jobs on drained nodes again."""
    return change_nodes(manager, events.ResumeNodes(names(request.nodes)), counted)
