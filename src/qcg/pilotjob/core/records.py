"""What the core remembers of a job and of its starts. Plain slotted objects; only the core changes them."""

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
    """What a grant holds of one node."""

    node: str
    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory: int = 0


class Grant(Struct, frozen=True, gc=False):
    """What one run has to itself, node by node."""

    parts: tuple[NodePart, ...]

    @property
    def ncores(self) -> int:
        return sum([len(part.cores) for part in self.parts])

    def __str__(self) -> str:
        """`n1[0:1],n2[0]`, as users know it."""
        return ",".join(f"{part.node}[{':'.join(map(str, part.cores))}]" for part in self.parts)


class Job:
    """One submitted job. `spec` is the encoded description: what the journal stores and the launch decodes."""

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
        """Dropped by the engine when the job is final and the journal has it."""
        self.submitted = submitted
        self.state = QUEUED
        self.message = ""
        self.iterations: Iterations | None = None
        self.attempt: Attempt | None = None
        """The run under way, of a job without iterations."""
        self.entries: tuple[QueueEntry, ...] = ()
        """Its places in the queue: one, or one for each size of its iterations."""
        self.unmet: UnmetDependencies | None = None
        self.dependents: Dependents | None = None
        self.attempts_made = 0
        """How many runs it has lost."""

    def has_position(self, position: int) -> bool:
        """-1 is a job without iterations, 0, 1, 2 … are the iterations of the others."""
        return position == -1 if self.iterations is None else 0 <= position < len(self.iterations)

    def attempts_of(self, position: int) -> int:
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
        """Of the iteration, counted from 0; -1 for a job without iterations."""
        self.number = number
        self.grant = grant
        self.scheduled = scheduled
        self.started = 0.0
        self.pid = 0
        self.killed = False
        """A kill has been asked for."""
        self.stopped = False
        """It has been told to end because this manager ends: its job waits for another one."""
        self.lane: Lane | None = None
        """Where others stand behind it, or it stands behind others."""


class Lane:
    """Runs that have the same cores, one after another, without a word between them."""

    __slots__ = ("attempts", "id", "retracted", "since")

    def __init__(self, first: Attempt, now: float) -> None:
        self.id = first.id
        self.attempts: dict[Attempt, None] = {first: None}
        """In order: the first has the cores, the others wait for it."""
        self.since = now
        """When the first one got them, or a little later."""
        self.retracted = False
        """Those behind the first were asked to wait elsewhere."""

    @property
    def first(self) -> Attempt:
        return next(iter(self.attempts))


class Cleanup:
    """A run on its way out, over all its nodes. It holds what it was given until none of them has anything of it."""

    __slots__ = ("attempt", "ended", "first", "grant", "id", "lost_message", "pending")

    def __init__(self, id: str, grant: Grant, first: str, pending: set[str], attempt: Attempt | None) -> None:
        self.id = id
        self.grant = grant
        self.first = first
        """The node whose agent has started it, and tells how it ended there."""
        self.pending = pending
        """The nodes that have not told that it is over there."""
        self.attempt = attempt
        """None for a run that no job wants."""
        self.ended: Ended | None = None
        """How it ended on its first node."""
        self.lost_message = ""
        """Why its end there is not to be believed: another node went before it could tell."""


def attempt_id(seq: int, position: int, number: int) -> str:
    return f"{seq}.{number}" if position < 0 else f"{seq}:{position}.{number}"


def parse_attempt_id(text: str) -> tuple[int, int, int]:
    """(seq, position, attempt) of a run id."""
    place, _, number = text.partition(".")
    seq, _, position = place.partition(":")
    return int(seq), int(position) if position else -1, int(number)
