from __future__ import annotations

from collections import Counter

from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description.requests import RerunJob, Submit
from qcg.pilotjob.interfaces.handlers.submit import parse
from qcg.pilotjob.interfaces.replies import Answer, ManagerEnding, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.rerun import rerun_event


async def rerun_job(manager: Manager, request: RerunJob, counted: Counted | None) -> Answer:
    """Run jobs again. The answer is sent when that survives a crash of the manager."""
    replacements = await parse(manager, Submit(request.jobs)) if request.jobs else []
    if manager.shutdown.is_requested:
        raise ManagerEnding("the manager is ending and runs no more jobs")
    given = [request.states] if isinstance(request.states, str) else request.states or []
    states = [State[name.upper()] for name in dict.fromkeys(given)]
    by_name = {description.name: description for description in replacements}
    if len(by_name) < len(replacements):
        counts = Counter(description.name for description in replacements)
        twice = [name for name, count in counts.items() if count > 1]
        raise SubmissionRejected([f"job {name!r} has several new descriptions; give one" for name in twice])
    names = request.names
    if not names and not states:
        names = list(by_name)
    event = rerun_event(manager.engine, manager.row_files, names, states, by_name)
    data, remark = manager.engine.carry_out(event, counted)
    return ok(data, remark or None)
