from __future__ import annotations

from qcg.pilotjob.core.events import ShutDown
from qcg.pilotjob.core.shutdown import Cause, Disposition
from qcg.pilotjob.description.requests import Finish
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.journal.metadata import FINISH_REQUESTED


async def finish(pilot: Pilot, request: Finish) -> Answer:
    """End the manager now. Running jobs are killed and CANCELED; waiting ones too where that was asked for."""
    pilot.engine.journal.set_metadata(FINISH_REQUESTED, True)
    if request.cancel:
        reason = "the manager was told to finish and to cancel all jobs"
        # Before the answer: a manager that resumes the run after a crash must not start these jobs.
        pilot.engine.carry_out(ShutDown(Disposition.CANCEL_ALL, reason))
        pilot.shutdown.make(Cause.FINISH_AND_CANCEL, reason)
    else:
        pilot.shutdown.make(Cause.FINISH, "the manager was told to finish")
    return ok(message="the service ends now", data={"when": "now"})
