"""Dispatch requests to their handlers. Every input gets an answer, and no input ends the manager."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from qcg.pilotjob.core.errors import CoreError, SubmissionRejected
from qcg.pilotjob.description import requests
from qcg.pilotjob.description.errors import DescriptionError, RequestError
from qcg.pilotjob.description.requests import Request, decode_request
from qcg.pilotjob.interfaces.handlers.cancel_job import cancel_job
from qcg.pilotjob.interfaces.handlers.connect_host import connect_host
from qcg.pilotjob.interfaces.handlers.control import control
from qcg.pilotjob.interfaces.handlers.drain_nodes import drain_nodes, resume_nodes
from qcg.pilotjob.interfaces.handlers.ended_jobs import ended_jobs
from qcg.pilotjob.interfaces.handlers.finish import finish
from qcg.pilotjob.interfaces.handlers.forget_host import forget_host
from qcg.pilotjob.interfaces.handlers.hold_job import hold_job
from qcg.pilotjob.interfaces.handlers.hosts import hosts
from qcg.pilotjob.interfaces.handlers.job_info import job_info
from qcg.pilotjob.interfaces.handlers.job_status import job_status
from qcg.pilotjob.interfaces.handlers.list_jobs import list_jobs
from qcg.pilotjob.interfaces.handlers.poll_jobs import poll_jobs
from qcg.pilotjob.interfaces.handlers.release_job import release_job
from qcg.pilotjob.interfaces.handlers.remove_job import remove_job
from qcg.pilotjob.interfaces.handlers.rerun_job import rerun_job
from qcg.pilotjob.interfaces.handlers.resources_info import resources_info
from qcg.pilotjob.interfaces.handlers.set_job import set_job
from qcg.pilotjob.interfaces.handlers.status import overview, status
from qcg.pilotjob.interfaces.handlers.submit import submit
from qcg.pilotjob.interfaces.handlers.summary import summary
from qcg.pilotjob.interfaces.handlers.why import why
from qcg.pilotjob.interfaces.replies import Answer, ManagerEnding, error
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.report.errors import ReportError

log = logging.getLogger(__name__)

_CHANGING: dict[type[Request], Callable[[Manager, Any, Counted | None], Awaitable[Answer]]] = {
    requests.Submit: submit,
    requests.Control: control,
    requests.CancelJob: cancel_job,
    requests.HoldJob: hold_job,
    requests.ReleaseJob: release_job,
    requests.SetJob: set_job,
    requests.RemoveJob: remove_job,
    requests.RerunJob: rerun_job,
    requests.ForgetHost: forget_host,
    requests.DrainNodes: drain_nodes,
    requests.ResumeNodes: resume_nodes,
    requests.Finish: finish,
}
"""Handlers of requests that change the run. Each commits the counter that it is given together with the change."""
_HANDLERS: dict[type[Request], Callable[[Manager, Any], Awaitable[Answer]]] = {
    requests.ListJobs: list_jobs,
    requests.JobStatus: job_status,
    requests.JobInfo: job_info,
    requests.Why: why,
    requests.EndedJobs: ended_jobs,
    requests.ResourcesInfo: resources_info,
    requests.Hosts: hosts,
    requests.ConnectHost: connect_host,
    requests.PollJobs: poll_jobs,
    requests.Status: status,
    requests.Summary: summary,
}


async def answer(manager: Manager, raw: bytes | msgspec.Raw, path: str = "") -> Answer:
    """Answer a request. One that could not be stored gets an error, so that its sender can repeat it."""
    try:
        return await carry_out(manager, raw, path)
    except (JournalError, ReportError, ManagerEnding) as problem:
        return error(_at(path, problem))


def answer_at_once(manager: Manager, raw: bytes) -> Answer | None:
    """Answer a small request from counters alone, without waiting for another turn of the event loop; None for all
    other requests, and for failed ones. Displays ask for these again and again, also while the manager is busy."""
    try:
        request = decode_request(raw)
        return overview(manager, request) if type(request) is requests.Status else None
    except Exception:  # noqa: BLE001 it is raised again where it is handled
        return None


async def carry_out(manager: Manager, raw: bytes | msgspec.Raw, path: str, counted: Counted | None = None) -> Answer:
    """Carry out a request, and answer it. `counted`: committed together with its effects.

    Raises JournalError or ReportError when its effects cannot be written, and ManagerEnding when it came too late; then
    it has had no effect.
    """
    try:
        request = decode_request(raw, path)
        change = _CHANGING.get(type(request))
        if change is not None:
            return await change(manager, request, counted)
        return await _HANDLERS[type(request)](manager, request)
    except RequestError as problem:
        return error(str(problem))
    except DescriptionError as problem:
        return error(str(problem.within(path)))
    except SubmissionRejected as problem:
        return error("\n".join(_at(path, sentence) for sentence in problem.sentences))
    except CoreError as problem:
        return error(_at(path, problem))
    except (JournalError, ReportError, ManagerEnding):
        raise
    except Exception:
        # Catches everything on purpose: a defect in the handler of one request must not affect other requests.
        log.critical("the handler of a request raised an unexpected error", exc_info=True)
        return error(_at(path, "internal error, see service.log"))


def _at(path: str, problem: Exception | str) -> str:
    return f"{path}: {problem}" if path else str(problem)
