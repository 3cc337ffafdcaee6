"""Shutdown policy: the effect of a manager's end on running and waiting jobs."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

KILL_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for the processes of running jobs."""


class Cause(Enum):
    """Why a manager ends."""

    DONE = "every job is final, and nothing more is expected"
    SIGNAL = "SIGINT, SIGTERM or SIGHUP"
    TIME = "the end of --time-limit or of the allocation"
    FAILURES = "as many failures as --stop-after takes"
    OWNER_GONE = "the program that started the manager has ended without `finish`"
    FINISH = "the request `finish`"
    REQUESTS_READ = "the end of a request file without finishAfterAllTasksDone"
    FINISH_AND_CANCEL = "the request `finish` with `cancel`"
    NO_HOST = "no agent can be started"
    DEFECT = "an unexpected error"


class Disposition(Enum):
    """The effect of a manager's end on jobs that are not final."""

    REQUEUE = "requeue"
    """Running attempts are ended, and their jobs are QUEUED again. Waiting jobs stay QUEUED."""
    CANCEL_RUNNING = "cancel running"
    """Running attempts are ended, and their jobs are CANCELED. Waiting jobs stay QUEUED."""
    CANCEL_ALL = "cancel all"
    """Running and waiting jobs are CANCELED."""
    LEAVE = "leave"
    """Nothing is decided: the next manager asks the agents for the results of running attempts."""


class Shutdown(Struct, frozen=True):
    """How a manager ends."""

    cause: Cause
    disposition: Disposition
    grace: float
    """Seconds that running jobs get to end after SIGTERM."""


DISPOSITIONS = {
    Cause.DONE: Disposition.REQUEUE,
    Cause.SIGNAL: Disposition.REQUEUE,
    Cause.TIME: Disposition.REQUEUE,
    Cause.FAILURES: Disposition.REQUEUE,
    Cause.OWNER_GONE: Disposition.REQUEUE,
    Cause.FINISH: Disposition.CANCEL_RUNNING,
    Cause.REQUESTS_READ: Disposition.CANCEL_RUNNING,
    Cause.FINISH_AND_CANCEL: Disposition.CANCEL_ALL,
    Cause.NO_HOST: Disposition.LEAVE,
    Cause.DEFECT: Disposition.LEAVE,
}


def decide(cause: Cause, *, grace: float | None = None, urgent: bool = False) -> Shutdown:
    """The shutdown that follows from its cause.

    `grace`: the grace period, if the remaining time limits it. `urgent`: kill running jobs without a grace period.
    """
    grace = KILL_GRACE if grace is None else grace
    return Shutdown(cause, DISPOSITIONS[cause], 0.0 if urgent else grace)
