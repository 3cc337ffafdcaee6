"""What all clients share, however they send: names, answers, and what may be asked twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qcg.pilotjob.api.errors import ConnectionError, InternalError, RequestRefusedError, WrongArgumentsError
from qcg.pilotjob.api.link import NotConnected

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
    return isinstance(error, NotConnected) or request.get("request") in QUESTIONS
