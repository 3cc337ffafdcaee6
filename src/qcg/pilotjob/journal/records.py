"""What the registry gives back: to a manager that resumes, and to those who ask about single jobs."""

from __future__ import annotations

from typing import NamedTuple

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant


class RunRecord(NamedTuple):
    """One run, or the end of an iteration that never ran (`attempt` 0, no grant)."""

    seq: int
    position: int
    attempt: int
    state: State
    scheduled: float | None
    started: float | None
    ended: float | None
    pid: int
    """0 when nothing was started."""
    exit_code: int | None
    grant: Grant | None
    killed: bool
    message: str
    stopped: bool = False
    """It was to end with its manager, and to be run again by the next one."""
    together: bool = False
    """It was settled together with many other iterations, without an entry in `jobs.report`."""


class JobRecord(NamedTuple):
    """The job itself; how it ran is in its runs."""

    seq: int
    name: str
    submitted: float
    iterations: int
    """How many it has; 0 for a job without."""
    state: State
    """QUEUED until final, or EXECUTING for an iterated job that has begun: its runs know better."""
    started: float | None
    ended: float | None
    message: str
    rest: State | None
    rest_at: float | None


class JobEnded(NamedTuple):
    """One end in the stream of ends that clients follow."""

    number: int
    name: str
    state: State
