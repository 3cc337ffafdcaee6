from __future__ import annotations

from qcg.pilotjob.description.requests import Control
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.journal.metadata import END_WHEN_DONE
from qcg.pilotjob.manager.manager import Manager


async def control(manager: Manager, request: Control) -> Answer:
    """End the manager when every job is final. A second request has no further effect."""
    manager.end_when_done.set()
    manager.engine.journal.set_metadata(END_WHEN_DONE, True)
    return ok(message=f"{request.command} command accepted")
