from __future__ import annotations

from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.requests import Submit
from qcg.pilotjob.interfaces.answers import Answer, ok
from qcg.pilotjob.interfaces.pilot import Pilot


async def submit(pilot: Pilot, request: Submit) -> Answer:
    """Take in jobs. The answer means that they are on disk."""
    data = await pilot.engine.submit(parse_jobs(request.jobs, pilot.arrival()))
    return ok(data, f"{data['submitted']} jobs submitted")
