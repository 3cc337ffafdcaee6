from __future__ import annotations

from typing import Any

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.events import Cancel
from qcg.pilotjob.core.named_jobs import find
from qcg.pilotjob.description.requests import CancelJob
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.report.formats import timestamp


async def cancel_job(manager: Manager, request: CancelJob, counted: Counted | None) -> Answer:
    """Cancel jobs and iterations. The answer is sent when the cancellation survives a crash of the manager."""
    data, remark = manager.engine.carry_out(Cancel(request.names), counted)
    if unreachable := _unreachable(manager.engine.state, request.names):
        data["unreachable"] = unreachable
    return ok(data, remark or None)


def _unreachable(state: CoreState, names: list[str]) -> dict[str, Any]:
    """The unreachable hosts that still run some of these jobs: they get the order when they answer."""
    found: dict[str, Any] = {}
    for host in state.pool.hosts:
        away = [node.spec.name for node in host.nodes if node.spec.name in state.unreachable_since]
        killed = {
            (attempt.job.name, position)
            for attempt in (state.attempts_of_nodes(away) if away else ())
            if attempt.kill_requested
            for position in (attempt.position, -1)
        }
        jobs = [name for name in names if _job_and_position(state, name) in killed]
        if jobs:
            found[host.name] = {"jobs": jobs, "since": timestamp(state.unreachable_since[away[0]])}
    return found


def _job_and_position(state: CoreState, name: str) -> tuple[str, int] | None:
    """The name of a job and the position of its iteration, or -1 for a job without one; None for an unknown name."""
    found = find(state, name)
    return None if isinstance(found, str) else (found[0].name, found[1])
