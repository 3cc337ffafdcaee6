from __future__ import annotations

from typing import Any

from qcg.pilotjob.core.ending import find
from qcg.pilotjob.description.requests import JobStatus
from qcg.pilotjob.interfaces.answers import Answer, ok
from qcg.pilotjob.interfaces.pilot import Pilot


async def job_status(pilot: Pilot, request: JobStatus) -> Answer:
    """The states of jobs and iterations; a name that is not there spoils only its own entry."""
    state = pilot.engine.state
    jobs: dict[str, Any] = {}
    for name in request.names:
        found = find(state, name)
        if isinstance(found, str):
            jobs[name] = {"status": 1, "message": found}
        else:
            jobs[name] = {"status": 0, "data": {"jobName": name, "status": state.state_of(*found).name}}
    return ok({"jobs": jobs})
