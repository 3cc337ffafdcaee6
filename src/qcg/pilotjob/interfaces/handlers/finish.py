from __future__ import annotations

from qcg.pilotjob.core.events import ShutDown
from qcg.pilotjob.core.shutdown import Cause, Disposition
from qcg.pilotjob.description.requests import Finish
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.journal.metadata import FINISH_REQUESTED
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager


async def finish(manager: Manager, request: Finish, counted: Counted | None) -> Answer:
    """End the manager now. Running jobs are killed and CANCELED; with `cancel`, waiting jobs are CANCELED, too."""
    if request.cancel:
        reason = "the manager was told to finish and to cancel all jobs"
        # Before the answer: a manager that resumes the run after a crash must not start these jobs.
        manager.engine.store(FINISH_REQUESTED, True)
        manager.engine.carry_out(ShutDown(Disposition.CANCEL_ALL, reason), counted)
        manager.shutdown.request(Cause.FINISH_AND_CANCEL, reason)
    else:
        # Not refused while nothing can be written: the shutdown waits until that works again.
        manager.engine.journal.set_metadata(FINISH_REQUESTED, True)
        manager.engine.commit_change(counted)
        manager.shutdown.request(Cause.FINISH, "the manager was told to finish")
    return ok(message="the service ends now", data={"when": "now"})
