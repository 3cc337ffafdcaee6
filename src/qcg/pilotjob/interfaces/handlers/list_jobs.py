from __future__ import annotations

import asyncio
from typing import Any

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description.requests import ListJobs
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.interfaces.run_view import RunView
from qcg.pilotjob.manager.job_views import message_of

AT_ONCE = 5000
"""Number of jobs that are listed before other requests are handled."""


async def list_jobs(run: RunView, request: ListJobs) -> Answer:
    """List all jobs with their states, and waiting jobs with their position in the queue."""
    jobs: dict[str, Any] = {}
    place = 0
    # A copy: other requests may add and remove jobs meanwhile.
    for number, job in enumerate(list(run.state.jobs.values()), 1):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        entry: dict[str, Any] = {"status": job.state.name}
        if job.state is State.QUEUED:
            entry["inQueue"] = place
            place += 1
        message = message_of(job)
        if message:
            entry["messages"] = message
        jobs[job.name] = entry
    return ok({"length": len(jobs), "jobs": jobs})
