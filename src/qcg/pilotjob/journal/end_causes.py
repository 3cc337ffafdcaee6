"""Causes of earlier attempts, found in their messages where the registry has no exact cause, and these messages.

When a job is run again by hand, the registry knows the state, the exit code and the message of its last attempt. The
message has the cause."""

from __future__ import annotations

import re

from qcg.pilotjob.host.records import EndReason

UNEXPLAINED = "failed"
"""The stored cause of an attempt whose job was run again, and that had no exit code of its own."""

_SENTENCES = (
    (r"exit code \d", EndReason.EXIT),
    (r"ended by signal \d", "signal"),
    (r"The job exceeded its wall time|.{0,40} ended the job at the time limit", EndReason.TIMEOUT),
    (
        r"The job used .{1,60} of memory|The kernel ended the job because memory ran out"
        r"|.{0,40} ended the job because it used more memory",
        EndReason.MEMORY,
    ),
    (r"It cannot be started: ", EndReason.UNSTARTABLE),
)
"""How messages begin, and the causes that they stand for. Patterns are compiled when they are used, not when a manager
starts."""
_LOST = r"\blost\b|unknown|may or may not|was not started|was not recorded|no record of it|not part of this run"
_NUMBER = r" \(attempt \d+\)$"


def message_of_end(message: str) -> str:
    """The message of an earlier attempt without its number, which the final message of a retried job has at its end."""
    return re.sub(_NUMBER, "", message)


def cause_of_end(stored: str, exit_code: int | None, started: float, message: str) -> str:
    """The cause of an earlier attempt, as in `retry.on`, or `cancel`, `closed`, `failed`. `started`: 0 for an attempt
    that was never started."""
    if stored not in (UNEXPLAINED, EndReason.EXIT):
        return stored
    found = next((cause for pattern, cause in _SENTENCES if re.match(pattern, message)), None)
    if found is not None or stored == EndReason.EXIT:
        return found or stored
    if exit_code == 0:
        return EndReason.STAGING
    if re.search(_LOST, message):
        return EndReason.LOST
    return stored if started else EndReason.UNSTARTABLE
