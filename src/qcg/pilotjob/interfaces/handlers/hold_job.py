from __future__ import annotations

from qcg.pilotjob.core.events import Hold
from qcg.pilotjob.description.requests import HoldJob
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager


async def hold_job(manager: Manager, request: HoldJob, counted: Counted | None) -> Answer:
    """Hold waiting jobs and iterations. The answer is sent when the hold survives a crash of the manager."""
    data, remark = manager.engine.carry_out(Hold(request.names), counted)
    return ok(data, remark or None)
