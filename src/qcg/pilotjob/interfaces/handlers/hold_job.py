from __future__ import annotations

import shlex

from qcg.pilotjob.core.events import Hold
from qcg.pilotjob.description.requests import HoldJob
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager


async def hold_job(manager: Manager, request: HoldJob, counted: Counted | None) -> Answer:
    """Hold waiting jobs and iterations. The answer is sent when the hold survives a crash of the manager."""
    data, remark = manager.engine.carry_out(Hold(request.names), counted)
    if data["held"] and manager.end_when_done.is_set():
        run_dir = shlex.quote(str(manager.engine.journal.path.parent))
        again = f"qcg-pm run --resume {run_dir} --release"
        data = {**data, "warnings": [f"the run ends when only held jobs are left, and continues with: {again}"]}
    return ok(data, remark or None)
