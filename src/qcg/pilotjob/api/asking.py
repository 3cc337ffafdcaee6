"""What all clients share, however they send: names, answers, and what may be asked twice."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from qcg.pilotjob.api.errors import ConnectionError, InternalError, RequestRefusedError, WrongArgumentsError

Names = str | Iterable[str]

QUESTIONS = frozenset({"listJobs", "jobStatus", "jobInfo", "resourcesInfo", "status"})
"""Requests that change nothing: asking again does no harm."""


def list_of(names: Names) -> list[str]:
    if isinstance(names, str):
        return [names]
    try:
        return [str(name) for name in names]
    except TypeError:
        raise WrongArgumentsError(f"names of jobs are a string or a list of strings, not {names!r}") from None


def seconds_of(timeout: Any, timeout_secs: Any) -> float | None:
    """How long a wait may take, under either of its two names; None: for ever."""
    if timeout is not None and timeout_secs is not None:
        raise WrongArgumentsError("give timeout or timeout_secs, not both: they mean the same")
    given = timeout_secs if timeout is None else timeout
    if given is None:
        return None
    if not isinstance(given, (int, float)) or math.isnan(given):
        raise WrongArgumentsError(
            f"a timeout is a number of seconds, not {given!r}; several names of jobs are given as one list"
        )
    return float(given)


def accepted(answer: dict[str, Any]) -> dict[str, Any]:
    if answer["code"] != 0:
        raise RequestRefusedError(answer.get("message", "no reason was given"))
    return answer


def data_of(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    data = answer.get("data")
    if not isinstance(data, dict):
        raise InternalError(f"the answer to {request['request']} has no data")
    return data


def may_ask_again(request: dict[str, Any], error: ConnectionError) -> bool:
    """Whether nothing can happen twice when a request that ended in this error is sent once more."""
    return not error.perhaps_sent or request.get("request") in QUESTIONS
