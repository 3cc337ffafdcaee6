"""Helpers of the blocking and the asyncio client: arguments, replies, and which requests may be repeated."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from qcg.pilotjob.api.errors import ConnectionError, InternalError, RequestRefusedError, WrongArgumentsError
from qcg.pilotjob.api.log import log
from qcg.pilotjob.description.json_input import InvalidJson
from qcg.pilotjob.report.run_summary import RunSummary

if TYPE_CHECKING:
    from qcg.pilotjob.api.job import Jobs

Names = str | Iterable[str]

MOST_NEVER_RUN = 10
"""Most jobs of one submission that are logged because they can never run."""
READ_ONLY = frozenset(
    {"listJobs", "jobStatus", "jobInfo", "why", "endedJobs", "resourcesInfo", "hosts", "pollJobs", "status", "summary"}
)
"""Requests that change nothing, so that they can be repeated after a reconnect."""


def name_list(names: Names) -> list[str]:
    """The names of jobs in an argument that is one name or a collection of names."""
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
    """The time limit of a wait."""

    seconds: float
    deadline: float
    """Time of the monotonic clock."""

    @property
    def left(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)


def time_limit(timeout: Any, timeout_secs: Any) -> Limit:
    """The limit of a wait that begins now; its timeout has two names, of which one may be given."""
    if timeout is not None and timeout_secs is not None:
        raise WrongArgumentsError("give timeout or timeout_secs, not both: they mean the same")
    given = timeout_secs if timeout is None else timeout
    if given is None:
        return Limit(math.inf, math.inf)
    if not isinstance(given, (int, float)) or (isinstance(given, float) and math.isnan(given)):
        raise WrongArgumentsError(
            f"a timeout is a number of seconds, not {given!r}; several names of jobs are given as one list"
        )
    if given < 0:
        raise WrongArgumentsError("a timeout must be at least 0 seconds; without one there is no limit")
    try:
        seconds = float(given)
    except OverflowError:  # an integer with hundreds of digits
        seconds = math.inf
    return Limit(seconds, time.monotonic() + seconds)


def log_request(request: dict[str, Any]) -> None:
    """Log a request: at level INFO when it changes something."""
    name, jobs = str(request.get("request")), request.get("jobs")
    if name in READ_ONLY:
        log.debug("request %s", name)
    elif name == "submit" and isinstance(jobs, (list, tuple)):
        log.info("request submit: %d jobs", len(jobs))
    else:
        log.info("request %s", name)


def check_accepted(answer: dict[str, Any]) -> dict[str, Any]:
    """Return a successful answer; raises RequestRefusedError for any other."""
    if answer["code"] != 0:
        reason = answer.get("message", "no reason was given")
        log.info("refused: %s", reason)
        raise RequestRefusedError(reason)
    return answer


def reply_data(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return the data of the answer to a request."""
    data = answer.get("data")
    if not isinstance(data, dict):
        raise InternalError(f"the answer to {request['request']} has no data")
    return data


def to_summary(data: dict[str, Any]) -> RunSummary:
    """The answer to a request for a summary as an object."""
    return msgspec.convert(data, RunSummary)


def submitted_names(data: dict[str, Any]) -> list[str]:
    """Return the names in the answer to a submission. Logs its warnings, and the first jobs that can never run."""
    for warning in data.get("warnings", ()):
        log.warning("%s", warning)
    failed: dict[str, str] = data.get("failed", {})
    for name, why in islice(failed.items(), MOST_NEVER_RUN):
        log.warning("job %r is FAILED and never runs: %s", name, why)
    if len(failed) > MOST_NEVER_RUN:
        log.warning("%d more jobs are FAILED and never run", len(failed) - MOST_NEVER_RUN)
    names: list[str] = data["jobs"]
    return names


def poll_request(names: Names, host: str | None) -> dict[str, Any]:
    about = {"jobNames": name_list(names)} if host is None else {"host": host}
    return {"request": "pollJobs", **about}


def list_request(after: str | None, limit: int | None, states: Names | None, pattern: Names | None) -> dict[str, Any]:
    """The request for a page of the list of jobs."""
    given = {
        "after": after,
        "limit": limit,
        "states": None if states is None else [state.upper() for state in name_list(states)],
        "pattern": None if pattern is None else name_list(pattern),
    }
    return {"request": "listJobs", **{key: value for key, value in given.items() if value is not None}}


def drain_request(names: Names, reason: str) -> dict[str, Any]:
    return {"request": "drainNodes", "nodes": name_list(names), **({"reason": reason} if reason else {})}


def resume_nodes_request(names: Names) -> dict[str, Any]:
    return {"request": "resumeNodes", "nodes": name_list(names)}


def message_of(answer: dict[str, Any]) -> str:
    """The sentence in an answer; empty when nothing has changed."""
    return str(answer.get("message") or "")


def finish_request(*, cancel: bool) -> dict[str, Any]:
    return {"request": "finish", "cancel": True} if cancel else {"request": "finish"}


def may_repeat(request: dict[str, Any], error: ConnectionError) -> bool:
    """Whether a request that ended with this error can be sent again without having its effect twice."""
    return not error.perhaps_sent or request.get("request") in READ_ONLY


def rerun_request(
    names: Names | None, states: Names | None, jobs: Jobs | None, *, reread: bool = False
) -> dict[str, Any]:
    """The request that runs jobs again."""
    request: dict[str, Any] = {"request": "rerunJob"}
    if names is not None:
        request["jobNames"] = name_list(names)
    if states is not None:
        request["states"] = [state.upper() for state in name_list(states)]
    if jobs is not None:
        request["jobs"] = jobs.ordered_jobs()
    if reread:
        request["reread"] = True
    if names is None and states is None and jobs is None:
        raise WrongArgumentsError("rerun wants names, states or jobs")
    return request
