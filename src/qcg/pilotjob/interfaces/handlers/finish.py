from __future__ import annotations

from qcg.pilotjob.description.requests import Finish
from qcg.pilotjob.interfaces.answers import Answer, ok
from qcg.pilotjob.interfaces.pilot import Pilot


async def finish(pilot: Pilot, request: Finish) -> Answer:
    """End the service now. Running jobs are ended, nothing is left behind. A manager that resumes ends as well."""
    pilot.engine.journal.set_meta("ending", 1)
    pilot.ending.set()
    return ok(message="the service ends now", data={"when": "now"})
