from __future__ import annotations

from qcg.pilotjob.core.events import Cancel
from qcg.pilotjob.description.requests import CancelJob
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.interfaces.replies import Answer, ok


async def cancel_job(pilot: Pilot, request: CancelJob) -> Answer:
    """End jobs and iterations. The answer means that it will not be forgotten, even by a manager that dies now."""
    data, remark = pilot.engine.carry_out(Cancel(request.names))
    return ok(data, remark or None)
