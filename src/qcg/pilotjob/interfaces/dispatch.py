"""Dispatch requests to their handlers. Every input gets an answer, and no input ends the manager."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module

import msgspec

from qcg.pilotjob.core.errors import CoreError, SubmissionRejected
from qcg.pilotjob.description import requests
from qcg.pilotjob.description.errors import DescriptionError, RequestError
from qcg.pilotjob.description.requests import Request, decode_request
from qcg.pilotjob.interfaces.replies import Answer, ManagerEnding, error
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.report.errors import ReportError

log = logging.getLogger(__name__)

_WORD = re.compile("[A-Z][a-z]+")

CHANGING = frozenset(
    (
        requests.Submit,
        requests.Control,
        requests.CancelJob,
        requests.HoldJob,
        requests.ReleaseJob,
        requests.SetJob,
        requests.RemoveJob,
        requests.RerunJob,
        requests.ForgetHost,
        requests.DrainNodes,
        requests.ResumeNodes,
        requests.Finish,
    )
)
"""Requests that change the run. Their handlers commit the counter that they are given together with the change."""


@cache
def handler_of(request: type[Request]) -> Callable[..., Awaitable[Answer]]:
    """The function of `handlers/` that has the name of the request: `list_jobs.list_jobs` for `ListJobs`.

    Its module is loaded when it is first needed, because a run needs few of them until its first job has started.
    """
    name = "_".join(_WORD.findall(request.__name__)).lower()
    module = import_module(f"qcg.pilotjob.interfaces.handlers.{name}")
    handler: Callable[..., Awaitable[Answer]] = getattr(module, name)
    return handler


async def answer(manager: Manager, raw: bytes | msgspec.Raw, path: str = "") -> Answer:
    """Answer a request. One that could not be stored gets an error, so that its sender can repeat it."""
    try:
        return await carry_out(manager, raw, path)
    except (JournalError, ReportError, ManagerEnding) as problem:
        return error(_at(path, problem))


def answer_at_once(manager: Manager, raw: bytes) -> Answer | None:
    """Answer a small request from counters alone, without waiting for another turn of the event loop; None for all
    other requests, and for failed ones. Displays ask for these again and again, also while the manager is busy."""
    if b"status" not in raw:
        return None  # without decoding it twice
    try:
        request = decode_request(raw)
        if type(request) is not requests.Status:
            return None
        from qcg.pilotjob.interfaces.handlers.status import overview  # here: see `handler_of`

        return overview(manager, request)
    except Exception:  # noqa: BLE001 it is raised again where it is handled
        return None


async def carry_out(manager: Manager, raw: bytes | msgspec.Raw, path: str, counted: Counted | None = None) -> Answer:
    """Carry out a request, and answer it. `counted`: committed together with its effects.

    Raises JournalError or ReportError when its effects cannot be written, and ManagerEnding when it came too late; then
    it has had no effect.
    """
    try:
        request = decode_request(raw, path)
        handle = handler_of(type(request))
        if type(request) in CHANGING:
            return await handle(manager, request, counted)
        return await handle(manager, request)
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
