"""Records of jobs, attempts, grants and lanes. Plain slotted objects that only the core changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from qcg.pilotjob.core.job_states import QUEUED

if TYPE_CHECKING:
    from qcg.pilotjob.core.dependencies import Dependents, UnmetDependencies
    from qcg.pilotjob.core.iterations import Iterations
    from qcg.pilotjob.core.queue import QueueEntry
    from qcg.pilotjob.host.records import Ended


class NodePart(Struct, frozen=True, array_like=True, gc=False):
    """The resources of one node that belong to a grant."""

    node: str
    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory: int = 0


class Grant(Struct, frozen=True, gc=False):
    """The resources that one attempt holds exclusively, node by node."""

    parts: tuple[NodePart, ...]

    @property
    def ncores(self) -> int:
        return sum([len(part.cores) for part in self.parts])

    def __str__(self) -> str:
        """The form shown to users: `n1[0:1],n2[0]`."""
        return ",".join(f"{part.node}[{':'.join(map(str, part.cores))}]" for part in self.parts)


class Job:
    """A submitted job."""

    __slots__ = (
        "attempt",
        "attempts_made",
        "dependents",
        "entries",
        "iterations",
        "message",
        "name",
        "seq",
        "spec",
        "state",
        "submitted",
        "unmet",
    )

    def __init__(self, seq: int, name: str, spec: bytes, submitted: float) -> None:
        self.seq = seq
        self.name = name
        self.spec: bytes | None = spec
        """Encoded description; the engine drops it once the job is final and stored in the journal."""
        self.submitted = submitted
        self.state = QUEUED
        self.message = ""
        self.iterations: Iterations | None = None
        self.attempt: Attempt | None = None
        """Current attempt of a job without iterations."""
        self.entries: tuple[QueueEntry, ...] = ()
        """Queue entries: one, or one for each size of its iterations."""
        self.unmet: UnmetDependencies | None = None
        self.dependents: Dependents | None = None
        self.attempts_made = 0
        """Number of attempts that were lost or taken back, for a job without iterations."""

    def has_position(self, position: int) -> bool:
        """Whether `position` exists: -1 in a job without iterations, 0, 1, 2 … in an iterated job."""
        return position == -1 if self.iterations is None else 0 <= position < len(self.iterations)

    def attempts_of(self, position: int) -> int:
        """The number of attempts already used up for the job (position -1) or an iteration."""
        return self.attempts_made if self.iterations is None else self.iterations.attempts_made.get(position, 0)


class Attempt:
    """One start of a job or of one of its iterations."""

    __slots__ = (
        "grant",
        "id",
        "job",
        "killed",
        "lane",
        "number",
        "pid",
        "position",
        "scheduled",
        "started",
        "stopped",
    )

    def __init__(self, job: Job, position: int, number: int, grant: Grant, scheduled: float) -> None:
        self.id = attempt_id(job.seq, position, number)
        self.job = job
        self.position = position
        """Position of the iteration, counted from 0; -1 for a job without iterations."""
        self.number = number
        self.grant = grant
        self.scheduled = scheduled
        self.started = 0.0
        self.pid = 0
        self.killed = False
        """Whether a kill was requested."""
        self.stopped = False
        """Whether the attempt was told to end because this manager shuts down; its job is queued again."""
        self.lane: Lane | None = None
        """Lane shared with attempts before or behind this one, if any."""


class Lane:
    """Attempts that use the same cores one after another, without a message to the manager in between."""

    __slots__ = ("attempts", "id", "retracted", "since")

    def __init__(self, first: Attempt, now: float) -> None:
        self.id = first.id
        self.attempts: dict[Attempt, None] = {first: None}
        """In order: the first attempt has the cores, the others were sent ahead and wait for it."""
        self.since = now
        """Time at which the first attempt got the cores, or a little later."""
        self.retracted = False
        """Whether the attempts behind the first one are being retracted."""

    @property
    def first(self) -> Attempt:
        return next(iter(self.attempts))


class Cleanup:
    """The end of an attempt on all its nodes; the attempt keeps its grant until every node reports that it is gone."""

    __slots__ = ("attempt", "ended", "first", "grant", "id", "lost_message", "pending")

    def __init__(self, id: str, grant: Grant, first: str, pending: set[str], attempt: Attempt | None) -> None:
        self.id = id
        self.grant = grant
        self.first = first
        """Node whose host started the attempt and reports its end."""
        self.pending = pending
        """Nodes that have not reported the end yet."""
        self.attempt = attempt
        """The attempt; None for processes that belong to no known job."""
        self.ended: Ended | None = None
        """End record of the first node."""
        self.lost_message = ""
        """Why the end record cannot be trusted: another node was lost before it reported."""


def attempt_id(seq: int, position: int, number: int) -> str:
    """The id of an attempt: `7.1` for the job with number 7, `7:3.1` for its iteration at position 3."""
    return f"{seq}.{number}" if position < 0 else f"{seq}:{position}.{number}"


def parse_attempt_id(text: str) -> tuple[int, int, int]:
    """Split an attempt id into job number, position and attempt number."""
    unit, _, number = text.partition(".")
    seq, _, position = unit.partition(":")
    return int(seq), int(position) if position else -1, int(number)
