"""Rows of the registry as typed records."""

from __future__ import annotations

from typing import NamedTuple

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.host.records import EndReason, Usage


class AttemptRecord(NamedTuple):
    """The latest attempt of a job or iteration, or the end of one that never started (`attempt` 0, no grant)."""

    seq: int
    position: int
    attempt: int
    state: State
    scheduled: float | None
    started: float | None
    ended: float | None
    pid: int
    """0 when no process was started."""
    exit_code: int | None
    grant: Grant | None
    kill_requested: bool
    message: str
    stop_requested: bool = False
    """It was ended with its manager; the next manager starts the job again."""
    together: bool = False
    """It became final together with many other iterations, without an entry in `jobs.report`."""
    usage: Usage | None = None
    """The resources that it used; None if they were not measured."""


CAUSES_WITHOUT_FAILURE = (EndReason.CANCEL, EndReason.CLOSED)
"""Causes of earlier attempts that did not fail: they were ended on purpose."""


class PastAttemptRecord(NamedTuple):
    """An earlier attempt of a job or iteration that was queued again."""

    seq: int
    position: int
    attempt: int
    cause: str
    counted: bool
    """Whether it counts against the retries of its cause."""
    next_at: float | None
    scheduled: float | None
    started: float | None
    ended: float | None
    pid: int
    exit_code: int | None
    grant: Grant | None
    message: str
    usage: Usage | None = None
    rerun_at: float | None = None
    """When its job was run again; None for a retry, and where it is not known."""

    @property
    def state(self) -> State:
        """CANCELED when its job was cancelled, or when it was ended with its manager; otherwise FAILED."""
        return State.CANCELED if self.cause in CAUSES_WITHOUT_FAILURE else State.FAILED

    @property
    def queued_again(self) -> float | None:
        """When its job was queued for the next attempt: at its rerun, or at the end of this attempt."""
        return self.rerun_at or self.ended


class JobRecord(NamedTuple):
    """A job, without its attempts."""

    seq: int
    name: str
    submitted: float
    iterations: int
    """Number of iterations; 0 for a job without."""
    state: State
    """QUEUED until final, or EXECUTING for an iterated job that has started; attempts have the exact state."""
    started: float | None
    ended: float | None
    message: str
    rest: State | None
    rest_at: float | None


class JobEnded(NamedTuple):
    """An entry of the numbered stream of job ends that clients follow."""

    number: int
    name: str
    state: State
