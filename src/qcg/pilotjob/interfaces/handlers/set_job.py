from __future__ import annotations

from qcg.pilotjob.core.events import SetJobs
from qcg.pilotjob.description.changes import change_of
from qcg.pilotjob.description.requests import SetJob
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager


async def set_job(manager: Manager, request: SetJob, counted: Counted | None) -> Answer:
    """Change the requests of waiting jobs. The answer is sent when the change survives a crash of the manager."""
    data, remark = manager.engine.carry_out(SetJobs(request.names, change_of(request)), counted)
    return ok(data, remark or None)
