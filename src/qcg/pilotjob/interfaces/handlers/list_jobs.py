from __future__ import annotations

from typing import Any

from qcg.pilotjob.core.states import State
from qcg.pilotjob.description.requests import ListJobs
from qcg.pilotjob.interfaces.answers import Answer, ok
from qcg.pilotjob.interfaces.pilot import Pilot


async def list_jobs(pilot: Pilot, request: ListJobs) -> Answer:
    """All jobs with their states; those that wait, with their place in the queue."""
    jobs: dict[str, Any] = {}
    place = 0
    for job in pilot.engine.state.jobs.values():
        entry: dict[str, Any] = {"status": job.state.name}
        if job.state is State.QUEUED:
            entry["inQueue"] = place
            place += 1
        if job.message:
            entry["messages"] = job.message
        jobs[job.name] = entry
    return ok({"length": len(jobs), "jobs": jobs})
