"""What the core wants done. The engine carries each effect to the rooms that care; nothing is decided again there."""

from __future__ import annotations

from typing import Any, Literal, Union

from msgspec import Struct

from qcg.pilotjob.core.bitmaps import Bitmap
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, Job


class Added(Struct, frozen=True, gc=False):
    """Jobs of one submission, all accepted. For the journal."""

    jobs: list[Job]


class Transition(Struct, frozen=True, gc=False):
    """A job, or one iteration of it, has entered a state: the one stream that journal, report and displays read."""

    job: Job
    position: int
    """The iteration, counted from 0; -1 for the job itself."""
    state: State
    at: float
    attempt: Attempt | None = None
    """The run that this is about, when there is one."""
    exit_code: int | None = None
    message: str = ""


class QueuedIterationsFinal(Struct, frozen=True, gc=False):
    """All iterations of a job that had not started are `state` from now on: one record, not N."""

    job: Job
    state: State
    at: float


class IterationsFinal(Struct, frozen=True, gc=False):
    """Many iterations of a job that had not started are `state` from now on, and others of it still wait."""

    job: Job
    marks: Bitmap
    state: State
    at: float
    message: str


class Launch(Struct, frozen=True, gc=False):
    """Start this run on the first node of its grant."""

    attempt: Attempt


class Kill(Struct, frozen=True, gc=False):
    """End this run. For the executor; and for the journal, so that a resumed manager still wants it ended."""

    attempt: Attempt


class Stop(Struct, frozen=True, gc=False):
    """End this run, and not because its job is not wanted. For the executor, whose host records `reason`, and for the
    journal: a resumed manager knows that a run with the reason `closed` is to be run again, whoever ended it."""

    attempt: Attempt
    reason: Literal["lost", "closed"]
    message: str


class Sweep(Struct, frozen=True, gc=False):
    """End what is left on this node of a run that was started on another one, and say when nothing is."""

    attempt_id: str
    node: str


class Retract(Struct, frozen=True, gc=False):
    """Take these runs back from their host, as far as they still stand behind others there."""

    attempts: list[Attempt]


class KillStray(Struct, frozen=True, gc=False):
    """A host runs something that no job of the registry wants."""

    attempt_id: str
    node: str


class Requeued(Struct, frozen=True, gc=False):
    """A run will not tell how it ended (its host was lost, or never got it): its job waits for another attempt."""

    attempt: Attempt


class Removed(Struct, frozen=True, gc=False):
    """A final job has left the registry. For the journal."""

    job: Job


class MoreToStart(Struct, frozen=True, gc=False):
    """Another pass would start more: this one has started as many as it was allowed to."""


class AllDone(Struct, frozen=True, gc=False):
    """Every job is final."""


class NoAttemptLeft(Struct, frozen=True, gc=False):
    """All runs have ended, and none is begun any more."""


class Reply(Struct, frozen=True, gc=False):
    """The answer to the request that was just handled."""

    data: dict[str, Any]


# None of them is part of a ring: nothing that they hold knows of them. So the search for garbage passes them over.
Effect = Union[
    Added,
    Transition,
    QueuedIterationsFinal,
    IterationsFinal,
    Launch,
    Kill,
    Stop,
    Sweep,
    Retract,
    KillStray,
    Requeued,
    Removed,
    MoreToStart,
    AllDone,
    NoAttemptLeft,
    Reply,
]
