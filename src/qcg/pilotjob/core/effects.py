"""Effects: actions that the core requests. The engine passes each to the journal, the executor and the observers."""

from __future__ import annotations

from typing import Any, Union

from msgspec import Struct

from qcg.pilotjob.core.bitmaps import Bitmap
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, DrainedNode, Job, PastAttempt


class Added(Struct, frozen=True, gc=False):
    """The jobs of an accepted submission. For the journal."""

    jobs: list[Job]


class Transition(Struct, frozen=True, gc=False):
    """A job or an iteration has entered a state. Journal, report and displays all read this stream."""

    job: Job
    position: int
    """Position of the iteration, counted from 0; -1 for the job itself."""
    state: State
    at: float
    attempt: Attempt | None = None
    """The attempt that caused it, if any."""
    exit_code: int | None = None
    message: str = ""


class QueuedIterationsFinal(Struct, frozen=True, gc=False):
    """All queued iterations of a job have entered a final state: one record instead of one for each."""

    job: Job
    state: State
    at: float


class IterationsFinal(Struct, frozen=True, gc=False):
    """Many queued iterations of a job have entered a final state, while others stay queued."""

    job: Job
    bitmap: Bitmap
    state: State
    at: float
    message: str


class Launch(Struct, frozen=True, gc=False):
    """Start this attempt on the first node of its grant."""

    attempt: Attempt


class Kill(Struct, frozen=True, gc=False):
    """Kill this attempt because its job is cancelled. Also for the journal: a resumed manager repeats the kill."""

    attempt: Attempt


class Stop(Struct, frozen=True, gc=False):
    """End this attempt although its job is not cancelled.

    The host records `reason`. The journal stores it: a resumed manager starts an attempt that was `closed` again.
    """

    attempt: Attempt
    reason: str
    """`EndReason.LOST` or `EndReason.CLOSED`."""
    message: str


class Sweep(Struct, frozen=True, gc=False):
    """End the processes on this node of an attempt started on another node, and report when none is left."""

    attempt_id: str
    node: str


class Retract(Struct, frozen=True, gc=False):
    """Take back attempts that were sent ahead to a host and still wait in their lane."""

    attempts: list[Attempt]


class KillStray(Struct, frozen=True, gc=False):
    """Kill an attempt that runs on a host and belongs to no job of the registry."""

    attempt_id: str
    node: str


class Requeued(Struct, frozen=True, gc=False):
    """An attempt did not succeed, or was taken back: its job is queued again for another attempt."""

    attempt: Attempt
    past: PastAttempt | None = None
    """How it ended; None for an attempt that was never started."""


class Reran(Struct, frozen=True, gc=False):
    """A job, or some of its iterations, had ended without success and are queued again. For the journal."""

    job: Job
    positions: tuple[int, ...]
    """Positions that are queued again; -1 for a job without iterations."""
    left: tuple[int, ...]
    """Iterations that stay as they have ended, without success."""
    was_final: bool
    """Whether the job itself had ended."""
    replaced: bool
    """Whether the job has a new description."""
    at: float


class WakeAt(Struct, frozen=True, gc=False):
    """A scheduling pass is needed at this time, because jobs pause or avoid a node until then."""

    at: float


class Held(Struct, frozen=True, gc=False):
    """A job (position -1) or an iteration is held. For the journal."""

    job: Job
    position: int
    since: float


class Released(Struct, frozen=True, gc=False):
    """A job with all its iterations (position -1), or an iteration, is no longer held. For the journal."""

    job: Job
    position: int
    within: bool = False
    """Whether the rest of its job stays held."""


class Redescribed(Struct, frozen=True, gc=False):
    """A waiting job has a new description. For the journal."""

    job: Job


class NodesDrained(Struct, frozen=True, gc=False):
    """The drained nodes have changed, or a node would be drained if it were not the last one."""

    drained: dict[str, DrainedNode]
    """All drained nodes, for the journal."""
    notice: str
    """For users."""


class Removed(Struct, frozen=True, gc=False):
    """A job was removed from the registry. For the journal."""

    job: Job


class MoreToStart(Struct, frozen=True, gc=False):
    """The scheduling pass reached its limit of starts: another pass may start more jobs."""


class FailureLimitReached(Struct, frozen=True, gc=False):
    """As many jobs have failed as `--stop-after` takes: from now on nothing is started."""

    reason: str
    """A clause for users."""


class FailureLimitCleared(Struct, frozen=True, gc=False):
    """Without the failures of a refused submission, fewer jobs have failed than `--stop-after` takes."""


class NothingLeftToDo(Struct, frozen=True, gc=False):
    """Nothing is started any more, and no attempt is left: the manager can end."""

    reason: str
    """A clause for users."""


class AllDone(Struct, frozen=True, gc=False):
    """Every job is final."""


class Reply(Struct, frozen=True, gc=False):
    """The answer to the request that was just handled."""

    data: dict[str, Any]


# No effect is part of a reference cycle, hence gc=False: the garbage collector need not track them.
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
    Reran,
    WakeAt,
    Held,
    Released,
    Redescribed,
    NodesDrained,
    Removed,
    MoreToStart,
    FailureLimitReached,
    FailureLimitCleared,
    NothingLeftToDo,
    AllDone,
    Reply,
]
