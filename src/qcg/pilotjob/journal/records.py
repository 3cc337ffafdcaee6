"""What the registry gives back: to a manager that resumes, and to those who ask about single jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant


class FinalJob(NamedTuple):
    """All that a resumed manager keeps in memory of a job that is over."""

    seq: int
    name: str
    state: State
    submitted: float
    iterations: int
    """How many; 0 for a job without."""
    message: str


class UnfinishedJob(NamedTuple):
    seq: int
    name: str
    submitted: float
    spec: bytes
    started: float | None
    """When the first iteration of an iterated job started; a job without iterations has it in its run."""
    rest: State | None
    """The state of all iterations that have neither a final state nor a run under way; `None`: they wait."""
    rest_at: float | None
    message: str
    """Why the rest was settled."""
    iterations: int = 0
    """How many; 0 for a job without."""


class SettledIteration(NamedTuple):
    """One final iteration of a job that is not final."""

    seq: int
    position: int
    state: State


class ForgottenRun(NamedTuple):
    """A run whose end nobody will tell. Its id is used up: the next run of that place needs a higher attempt."""

    seq: int
    position: int
    attempt: int


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


class Loaded(NamedTuple):
    """The whole registry as a resumed manager needs it.

    The iterators read from disk: use them up before the next write.
    """

    max_seq: int
    """The highest sequence number ever given, also to jobs removed since."""
    final: Iterator[FinalJob]
    unfinished: Iterator[UnfinishedJob]
    """In the order of submission."""
    settled: Iterator[SettledIteration]
    under_way: list[RunRecord]
    forgotten: list[ForgottenRun]
