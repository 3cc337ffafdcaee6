from __future__ import annotations

import asyncio

from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.description.parse import parse_in_steps
from qcg.pilotjob.description.requests import Submit
from qcg.pilotjob.interfaces.answers import Answer, error, ok
from qcg.pilotjob.interfaces.pilot import Pilot


async def submit(pilot: Pilot, request: Submit) -> Answer:
    """Take in jobs. The answer means that they are on disk."""
    jobs = await _parse(pilot, request)
    if pilot.ending.is_set():
        return error("the service is ending and takes no more jobs")
    data = await pilot.engine.submit(jobs)
    return ok(data, f"{data['submitted']} jobs submitted")


async def _parse(pilot: Pilot, request: Submit) -> list[JobDescription]:
    """Others are served in between, however many jobs these are."""
    steps = parse_in_steps(request.jobs, pilot.arrival())
    while True:
        try:
            next(steps)
        except StopIteration as done:
            jobs: list[JobDescription] = done.value
            return jobs
        await asyncio.sleep(0)
