from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from qcg.pilotjob.core.job_states import FAILED, QUEUED
from qcg.pilotjob.core.named_jobs import find
from qcg.pilotjob.description.requests import JobStatus
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.interfaces.run_view import RunView
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.report.formats import timestamp

AT_ONCE = 5000
"""Number of names that are looked up before other requests are handled."""


async def job_status(run: RunView, request: JobStatus) -> Answer:
    """Return the states of jobs and iterations, why iterations have failed, and an error for each unknown name."""
    state = run.state
    jobs: dict[str, Any] = {}
    for number, name in enumerate(request.names, 1):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        found = find(state, name)
        if isinstance(found, str):
            jobs[name] = {"status": 1, "message": found}
        else:
            data = {"jobName": name, "status": state.state_of(*found).name}
            if state.holds and data["status"] == QUEUED.name and (held := state.holds.since(*found)):
                data["heldSince"] = timestamp(held)
            if data["status"] == FAILED.name and found[1] >= 0:
                with suppress(JournalError):  # the registry cannot be written at the moment
                    data["messages"] = run.views.failure_of(*found)
            jobs[name] = {"status": 0, "data": data}
    return ok({"jobs": jobs})
