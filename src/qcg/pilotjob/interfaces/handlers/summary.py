from __future__ import annotations

import msgspec

from qcg.pilotjob.description.requests import Summary
from qcg.pilotjob.interfaces.registry_view import RegistryView
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.report.recorded_summary import recorded_summary


async def summary(manager: Manager, request: Summary) -> Answer:
    """Return the summary of the run, from counters."""
    return ok(msgspec.to_builtins(await manager.summaries.make()))


async def recorded(run: RegistryView, request: Summary) -> Answer:
    """The same for a run without a manager."""
    return ok(msgspec.to_builtins(recorded_summary(run.connection, run.run_dir)))
