from __future__ import annotations

import asyncio

from qcg.pilotjob.common.gc_tuning import release_memory
from qcg.pilotjob.core.events import Remove
from qcg.pilotjob.description.requests import RemoveJob
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager

MANY = 10_000
"""Number of removed jobs from which on freeing their memory is worth the time."""


async def remove_job(manager: Manager, request: RemoveJob, counted: Counted | None) -> Answer:
    """Remove final jobs from the registry; their names are free again."""
    data, remark = manager.engine.carry_out(Remove(request.names), counted)
    if len(request.names) >= MANY:
        asyncio.get_running_loop().call_later(0.1, _give_memory_back, manager)
    return ok(data, remark or None)


def _give_memory_back(manager: Manager) -> None:
    """Free memory a moment after the answer, when the request object is gone, too."""
    manager.engine.journal.give_back_memory()
    release_memory()
