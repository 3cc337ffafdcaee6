from __future__ import annotations

from qcg.pilotjob.description.requests import Control
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.journal.metadata import END_WHEN_DONE
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager


async def control(manager: Manager, request: Control, counted: Counted | None) -> Answer:
    """End the manager when every job is final. A second request has no further effect.

    The answer is sent when the request survives a crash of the manager."""
    remark = manager.engine.store(END_WHEN_DONE, True, counted)
    manager.end_when_done.set()
    accepted = f"{request.command} command accepted"
    return ok(message=f"{accepted}. {remark}" if remark else accepted)
