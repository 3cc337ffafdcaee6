from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.named_jobs import find
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.errors import quoted, suggestion
from qcg.pilotjob.description.requests import JobStatus, PollJobs
from qcg.pilotjob.interfaces.handlers.job_status import job_status
from qcg.pilotjob.interfaces.replies import Answer, error
from qcg.pilotjob.manager.manager import Manager


async def poll_jobs(manager: Manager, request: PollJobs) -> Answer:
    """Poll the hosts of these jobs, and return the current states of the jobs."""
    engine = manager.engine
    known = tuple(engine.executor.host_states())
    if request.host is not None:
        if request.host not in known:
            return error(f"this run has no remote host {quoted(request.host)}{suggestion(request.host, known)}")
        hosts = {request.host}
    else:
        hosts = _hosts_of(engine.state, request.names) if request.names else set(known)
    await engine.executor.poll(hosts)
    return await job_status(manager, JobStatus(request.names))


def _hosts_of(state: CoreState, names: list[str]) -> set[str]:
    """The remote hosts with attempts of these jobs and iterations."""
    wanted: set[tuple[Job, int]] = {found for name in names if not isinstance(found := find(state, name), str)}
    hosts = {
        state.pool.node(part.node).spec.group
        for attempt in state.attempts.values()
        if (attempt.job, attempt.position) in wanted or (attempt.job, -1) in wanted
        for part in attempt.grant.parts
        if part.node in state.pool
    }
    return hosts - {""}
