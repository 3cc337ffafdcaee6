"""Records of jobs, attempts, grants, lanes and nodes. Plain slotted objects that only the core changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from qcg.pilotjob.core.job_states import QUEUED
from qcg.pilotjob.description.model import WHOLE_GPU, ExtraResources

if TYPE_CHECKING:
    from qcg.pilotjob.core.dependencies import Dependents, UnmetDependencies
    from qcg.pilotjob.core.iterations import Iterations
    from qcg.pilotjob.core.queue import QueueEntry
    from qcg.pilotjob.host.records import Ended, Usage


class NodePart(Struct, frozen=True, array_like=True, gc=False):
    """The resources of one node that belong to a grant."""

    node: str
    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory: int = 0


class Grant(Struct, frozen=True, omit_defaults=True, gc=False):
    """The resources that one attempt holds, node by node. Cores are exclusive, GPUs unless `own` has a part of one."""

    parts: tuple[NodePart, ...]
    extra: ExtraResources | None = field(default=None, name="own")  # the name in registries
    """Named resources and the part of the GPU on each node, as requested."""

    @property
    def ncores(self) -> int:
        return sum([len(part.cores) for part in self.parts])

    @property
    def extra_text(self) -> str:
        """Named resources and parts of GPUs as shown to users: `0.5 of GPU 0, 1 license`; empty if there are none."""
        if self.extra is None:
            return ""
        share = self.extra.gpu_share
        gpus = dict.fromkeys([gpu for part in self.parts for gpu in part.gpus]) if share else {}
        words = [f"{share / WHOLE_GPU:g} of GPU {', '.join(gpus)}"] if share else []
        return ", ".join([*words, *[f"{number} {name}" for name, number in (*self.extra.on_node, *self.extra.of_run)]])

    def __str__(self) -> str:
        """The form shown to users: `n1[0:1],n2[0]`."""
        return ",".join(f"{part.node}[{':'.join(map(str, part.cores))}]" for part in self.parts)


class Job:
    """A submitted job."""

    __slots__ = (
        "attempt",
        "dependents",
        "entries",
        "iterations",
        "last_number",
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
        """Encoded description; None once the job is final: the journal has it."""
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
        self.last_number = 0
        """Number of the last attempt that is over, for a job without iterations; 0 before it."""

    def all_entries(self) -> tuple[QueueEntry, ...]:
        """Its queue entries, also those of single iterations."""
        apart = None if self.iterations is None else self.iterations.apart_by_demand
        return (*self.entries, *apart.values()) if apart else self.entries

    def has_position(self, position: int) -> bool:
        """Whether `position` exists: -1 in a job without iterations, 0, 1, 2 … in an iterated job."""
        return position == -1 if self.iterations is None else 0 <= position < len(self.iterations)

    def last_number_of(self, position: int) -> int:
        """The number of the last attempt of the job (position -1) or an iteration that is over; 0 before it."""
        return self.last_number if self.iterations is None else self.iterations.last_numbers.get(position, 0)

    def attempts_in_progress(self, position: int = -1) -> list[Attempt]:
        """The attempts of the job and its iterations, or of one iteration."""
        if self.iterations is None:
            return [] if self.attempt is None else [self.attempt]
        attempts = self.iterations.attempts
        if position < 0:
            return list(attempts.values())
        return [attempts[position]] if position in attempts else []


class Attempt:
    """One start of a job or of one of its iterations."""

    __slots__ = (
        "grant",
        "id",
        "job",
        "kill_requested",
        "lane",
        "number",
        "ordinal",
        "pid",
        "position",
        "scheduled",
        "started",
        "started_by",
        "stop_requested",
        "usage",
    )

    def __init__(self, job: Job, position: int, number: int, grant: Grant, scheduled: float) -> None:
        self.id = attempt_id(job.seq, position, number)
        self.job = job
        self.position = position
        """Position of the iteration, counted from 0; -1 for a job without iterations."""
        self.number = number
        """Number in the id: also attempts that were taken back before they started have one."""
        self.ordinal = 1
        """Value of `${attempt}`: 1 for the first attempt that was started, 2 for the second."""
        self.grant = grant
        self.scheduled = scheduled
        self.started = 0.0
        """When it started, by the clock of its host; 0 before that is reported."""
        self.started_by = 0.0
        """When its start was reported, by the clock of the manager."""
        self.pid = 0
        self.kill_requested = False
        self.stop_requested = False
        """Whether the attempt was told to end because this manager shuts down; its job is queued again."""
        self.lane: Lane | None = None
        """Lane shared with attempts before or behind this one, if any."""
        self.usage: Usage | None = None
        """Its resource usage, once it has ended."""


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


class PastAttempt(Struct, frozen=True, gc=False):
    """An attempt that is over, after which its job is queued again."""

    cause: str
    """One of the causes of `retry`, or `closed` when it was ended with its manager."""
    at: float
    """When it ended."""
    exit_code: int | None = None
    message: str = ""
    next_at: float = 0.0
    """Time of the next attempt at the earliest; 0 for at once."""
    counted: bool = False
    """Whether it counts against the retries of its cause."""


class Past:
    """The earlier attempts of a job or iteration that was queued again."""

    __slots__ = ("attempts", "failed_node", "failures", "retries", "steps", "unstartable")

    def __init__(self) -> None:
        self.attempts = 0
        """Number of attempts that were started."""
        self.failed_node = ""
        """Node on which the last attempt failed, which the next one avoids; empty if it was on several nodes."""
        self.failures: dict[str, Failure] | None = None
        """Last failure on each node, under this manager."""
        self.unstartable = False
        """Whether an attempt could not be started."""
        self.retries: dict[str, int] = {}
        """Number of retries used for each cause."""
        self.steps = 0
        """Number of times that the resources have grown."""


class Failure(NamedTuple):
    """The failure of a job on a node; the cause may be the job or the node."""

    cause: str
    at: float
    of_node: NodeFailures
    """The failures on the node at that time; the node has another record once an attempt has succeeded there."""


class NodeFailures:
    """The failures on a node since an attempt succeeded there."""

    __slots__ = ("jobs", "losses", "lost_at", "notified")

    def __init__(self) -> None:
        self.jobs = 0
        """Number of failures of jobs that are the fault of the node."""
        self.losses = 0
        """Number of times that the node was lost under an attempt."""
        self.lost_at = 0.0
        """Time of the last loss."""
        self.notified = False
        """Whether the user was notified that this node would be drained, if there were another one."""


class DrainedNode(Struct, frozen=True):
    """A node that gets no new attempts."""

    since: float
    reason: str
    """As a clause for users."""


class NodeHealth:
    """Failure counts of nodes that fail for reasons of their own, and the drained nodes."""

    __slots__ = (
        "avoidances",
        "avoiding",
        "drained",
        "failed_at",
        "failures",
        "limit",
        "sharing_host",
        "since",
        "unstartable",
    )

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Number of failures after which a node is drained; 0: never."""
        self.failures: dict[str, NodeFailures] = {}
        """Failures in a row, by node."""
        self.failed_at: dict[str, float] = {}
        """Time of the last failure on each node, whatever its cause."""
        self.avoiding: dict[tuple[int, int], tuple[float, Job]] = {}
        """Jobs and iterations that avoid a node, with the time until then, by job number and position."""
        self.avoidances: list[tuple[float, int, int]] = []
        """Heap of the same times, and of times that no longer count."""
        self.sharing_host: set[str] = set()
        """Nodes whose host has other nodes, too: virtual nodes. They are all lost at once, which is no fault of one."""
        self.unstartable: set[int] = set()
        """Numbers of iterated jobs that could not be started on two nodes."""
        self.drained: dict[str, DrainedNode] = {}
        """Drained nodes by name; some may not be part of the run at the moment."""
        self.since = 0.0
        """Time from which on this manager knows of drained nodes of earlier managers."""


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
