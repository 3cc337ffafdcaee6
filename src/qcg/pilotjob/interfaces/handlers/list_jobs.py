from __future__ import annotations

import asyncio
from operator import itemgetter
from typing import Any

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description.requests import ListJobs
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.interfaces.run_view import RunView
from qcg.pilotjob.manager.job_views import message_of
from qcg.pilotjob.report.formats import timestamp

AT_ONCE = 5000
"""Number of jobs that are listed before other requests are handled."""


async def list_jobs(run: RunView, request: ListJobs) -> Answer:
    """List all jobs with their states, and waiting jobs with their position in the queue."""
    jobs: dict[str, Any] = {}
    waiting: list[tuple[int, dict[str, Any]]] = []
    # A copy: other requests may add and remove jobs meanwhile.
    for number, job in enumerate(list(run.state.jobs.values()), 1):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        entry: dict[str, Any] = {"status": job.state.name}
        if job.state is State.QUEUED:
            if held := run.state.holds.since(job, -1):
                entry["heldSince"] = timestamp(held)
            waiting.append((job.entries[0].order if job.entries else job.seq, entry))
        message = message_of(job)
        if message:
            entry["messages"] = message
        jobs[job.name] = entry
    waiting.sort(key=itemgetter(0))
    for place, (_, entry) in enumerate(waiting):
        entry["inQueue"] = place
    return ok({"length": len(jobs), "jobs": jobs})
