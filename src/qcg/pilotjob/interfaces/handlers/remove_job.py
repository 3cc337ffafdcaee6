from __future__ import annotations

from qcg.pilotjob.core.events import Remove
from qcg.pilotjob.description.requests import RemoveJob
from qcg.pilotjob.interfaces.answers import Answer, ok
from qcg.pilotjob.interfaces.pilot import Pilot


async def remove_job(pilot: Pilot, request: RemoveJob) -> Answer:
    data = pilot.engine.dispatch(Remove(request.names))
    pilot.engine.commit()
    return ok(data)
