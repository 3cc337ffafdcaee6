from __future__ import annotations

from qcg.pilotjob.core.events import Release
from qcg.pilotjob.description.requests import ReleaseJob
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager


async def release_job(manager: Manager, request: ReleaseJob, counted: Counted | None) -> Answer:
    """Release held jobs and iterations. The answer is sent when that survives a crash of the manager."""
    data, remark = manager.engine.carry_out(Release(request.names), counted)
    return ok(data, remark or None)
