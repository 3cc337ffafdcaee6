from __future__ import annotations

from qcg.pilotjob.core.events import Cancel
from qcg.pilotjob.description.requests import CancelJob
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.manager import Manager


async def cancel_job(manager: Manager, request: CancelJob) -> Answer:
    """Cancel jobs and iterations. The answer is sent when the cancellation survives a crash of the manager."""
    data, remark = manager.engine.carry_out(Cancel(request.names))
    return ok(data, remark or None)
