"""What all clients share, however they send: names, answers, and what may be asked twice."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from qcg.pilotjob.api.errors import ConnectionError, InternalError, RequestRefusedError, WrongArgumentsError
from qcg.pilotjob.api.log import log
from qcg.pilotjob.description.json_input import InvalidJson

Names = str | Iterable[str]

QUESTIONS = frozenset({"listJobs", "jobStatus", "jobInfo", "why", "endedJobs", "resourcesInfo", "status"})
"""Requests that change nothing: asking again does no harm."""


def list_of(names: Names) -> list[str]:
    if isinstance(names, str):
        return [names]
    try:
        return [str(name) for name in names]
    except TypeError:
        kind = type(names).__name__
        raise WrongArgumentsError(f"names of jobs are a string or a list of strings, not of type {kind}") from None
    except ValueError as error:
        raise WrongArgumentsError(f"a name {InvalidJson.because(error)}") from None


class Limit(NamedTuple):
    """How long a wait may take."""

    seconds: float
    deadline: float
    """On the monotonic clock."""

    @property
    def left(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)


def limit_of(timeout: Any, timeout_secs: Any) -> Limit:
    """The limit of a wait that begins now, from either of the two names that the timeout has."""
    if timeout is not None and timeout_secs is not None:
        raise WrongArgumentsError("give timeout or timeout_secs, not both: they mean the same")
    given = timeout_secs if timeout is None else timeout
    if given is None:
        return Limit(math.inf, math.inf)
    if not isinstance(given, (int, float)) or (isinstance(given, float) and math.isnan(given)):
        raise WrongArgumentsError(
            f"a timeout is a number of seconds, not {given!r}; several names of jobs are given as one list"
        )
    try:
        seconds = float(given)
    except OverflowError:  # an integer with hundreds of digits
        seconds = math.copysign(math.inf, 1 if given > 0 else -1)
    return Limit(seconds, time.monotonic() + seconds)


def log_request(request: dict[str, Any]) -> None:
    """Requests that change something are worth a line in every log."""
    name, jobs = str(request.get("request")), request.get("jobs")
    if name in QUESTIONS:
        log.debug("request %s", name)
    elif name == "submit" and isinstance(jobs, (list, tuple)):
        log.info("request submit: %d jobs", len(jobs))
    else:
        log.info("request %s", name)


def accepted(answer: dict[str, Any]) -> dict[str, Any]:
    if answer["code"] != 0:
        reason = answer.get("message", "no reason was given")
        log.info("refused: %s", reason)
        raise RequestRefusedError(reason)
    return answer


def data_of(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    data = answer.get("data")
    if not isinstance(data, dict):
        raise InternalError(f"the answer to {request['request']} has no data")
    return data


def submitted(data: dict[str, Any]) -> list[str]:
    """The names in the answer to a submission, whose warnings go to the log."""
    for warning in data.get("warnings", ()):
        log.warning("%s", warning)
    names: list[str] = data["jobs"]
    return names


def finish_request(*, cancel: bool) -> dict[str, Any]:
    return {"request": "finish", "cancel": True} if cancel else {"request": "finish"}


def may_ask_again(request: dict[str, Any], error: ConnectionError) -> bool:
    """Whether nothing can happen twice when a request that ended in this error is sent once more."""
    return not error.perhaps_sent or request.get("request") in QUESTIONS
