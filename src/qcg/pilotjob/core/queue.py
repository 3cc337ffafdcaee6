"""The job queue: one line for each distinct resource request, ordered by priority and arrival between their heads.

A job is an entry in the line of its request. An iterated job is one entry, however many iterations it has; only if its
iterations have different sizes (`maximum-iters`) is it one entry for each size.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

from qcg.pilotjob.core.arrival_order import ArrivalOrder
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import QUEUED
from qcg.pilotjob.core.node_group import Target
from qcg.pilotjob.core.pool import Pool
from qcg.pilotjob.core.priority_order import PriorityOrder
from qcg.pilotjob.core.ready_positions import ReadyPositions
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.model import ResourceRequest

Key = tuple[ResourceRequest, float, str]
"""Identity of a line: a resource request, a wall time, 0 for none, and a node that its jobs avoid."""

MANY_LINES = 256
"""Number of lines from which on similar wall times share a line: a scheduling pass visits every line, so its cost must
not grow with the number of distinct wall times."""
MANY_REQUESTS = 4096
"""Number of distinct requests whose durations are remembered."""


class Demand(NamedTuple):
    """The resource request, wall time and priority of an attempt."""

    request: ResourceRequest
    wall_time: float
    """Wall time in seconds, 0 for none."""
    rank: int = 0
    """Rank of its priority."""
    avoid: str = ""
    """Name of the node on which the last attempt failed; empty if any node will do."""


class QueueEntry:
    """A job in one line of the queue, and which of its iterations can be started."""

    __slots__ = ("fresh", "in_line", "job", "line", "ready", "size", "wall_time")

    rank: int = 0
    """The rank of the priority; its sum with the job number is the place in the queue. Jobs without a priority
    share this value."""

    def __init__(self, job: Job, line: QueueLine, wall_time: float | None = None, size: int | None = None) -> None:
        self.job = job
        self.line = line
        self.wall_time = wall_time or 0.0
        """Wall time of each attempt in seconds, 0 for none; may differ slightly from that of the line."""
        self.size = size
        """Size of the iterations of this entry, if the job has iterations of several sizes."""
        self.fresh: int | None = None
        """Position from which on all queued iterations can be started; -1 for a job without iterations."""
        self.ready: ReadyPositions | None = None
        """Single positions that can be started as well: same-index dependencies met, or attempts to repeat."""
        self.in_line = False

    @property
    def demand(self) -> Demand:
        return Demand(self.line.request, self.wall_time, self.rank, self.line.avoid)

    @property
    def order(self) -> int:
        """The place in the queue: lower numbers are considered first."""
        return self.job.seq + self.rank

    def __lt__(self, other: QueueEntry) -> bool:
        """Two entries of one job can be in a line: when the job is run again, its exhausted entry may be there."""
        return self.order < other.order

    def make_ready(self, position: int) -> None:
        """Let one position be started, independently of the others."""
        if position < 0:
            self.fresh = position
        else:
            if self.ready is None:
                self.ready = ReadyPositions()
            self.ready.add(position)

    def first_ready(self) -> int | None:
        """The first position that can be started, or None; positions that are no longer queued are skipped."""
        job = self.job
        if job.iterations is None:
            return -1 if self.fresh == -1 and job.state is QUEUED else None
        if job.state.is_final:
            return None
        ready = self.ready
        if ready is None:
            return self._next_fresh(job.iterations)
        single = ready.first(job.iterations.states)
        fresh = self._next_fresh(job.iterations)
        if single is not None and (fresh is None or single <= fresh):
            return single
        return fresh

    def take(self, position: int) -> None:
        """Take out the position of an iteration that `first_ready` returned."""
        if position == self.fresh:
            self.fresh = position + 1
        elif self.ready is not None:
            self.ready.drop_first()

    def can_reach(self, position: int) -> bool:
        """Whether `first_ready` will return this position at some time."""
        if position in (self.ready or ()):
            return True
        apart = self.job.iterations.apart if self.job.iterations is not None else None
        return self.fresh is not None and self.fresh <= position and not (apart and position in apart)

    def withdraw(self, position: int) -> bool:
        """Do not start this position until it is made ready again; returns whether it was ready."""
        was_ready = self.can_reach(position)
        if position < 0:
            self.fresh = None
        elif self.ready:
            self.ready.withdraw(position)
        return was_ready

    def _next_fresh(self, iterations: Iterations) -> int | None:
        if self.fresh is None:
            return None
        states, apart, plan = iterations.states, iterations.apart, iterations.plan
        position = states.find(QUEUED, self.fresh)
        if apart or (plan is not None and self.size is not None):
            while position >= 0:
                of_size = position if plan is None or self.size is None else plan.next_of(self.size, position)
                if of_size == position and not (apart and position in apart):
                    break
                position = -1 if of_size is None else states.find(QUEUED, of_size + (of_size == position))
        self.fresh = position if position >= 0 else None
        return self.fresh


class RankedEntry(QueueEntry):
    """The entry of a job with a priority other than 0."""

    __slots__ = ("rank",)

    def __init__(self, job: Job, line: QueueLine, wall_time: float | None, size: int | None, rank: int) -> None:
        QueueEntry.__init__(self, job, line, wall_time, size)  # super() would add a tenth to the cost of a priority
        self.rank = rank


def make_entry(
    job: Job, line: QueueLine, wall_time: float | None = None, size: int | None = None, rank: int = 0
) -> QueueEntry:
    return RankedEntry(job, line, wall_time, size, rank) if rank else QueueEntry(job, line, wall_time, size)


def entry_of(job: Job, position: int) -> QueueEntry:
    """The queue entry in which a position of a job waits, or waited before it was started."""
    iterations = job.iterations
    if iterations is None:
        return job.entries[0]
    apart = iterations.apart.get(position) if iterations.apart else None
    return own_entry(job, position) if apart is None else apart


def own_entry(job: Job, position: int) -> QueueEntry:
    """The queue entry of a position with the demand of its job, whether or not the position waits there."""
    plan = None if job.iterations is None else job.iterations.plan
    if plan is None:
        return job.entries[0]
    size = plan.size(position)
    return next(entry for entry in job.entries if entry.size == size)


class Durations:
    """Recent durations of attempts with the same resource request."""

    __slots__ = ("longest", "mean", "slowest", "succeeded")

    def __init__(self) -> None:
        self.longest: float | None = None
        """Longest recent duration in seconds, slowly decaying; None before the first attempt has ended."""
        self.mean = 0.0
        """Moving average in seconds."""
        self.slowest = 0.0
        """Longest duration in seconds of all attempts."""
        self.succeeded = 0
        """Number of attempts that have succeeded."""


class QueueLine:
    """The entries with the same resource request and the same, or nearly the same, wall time."""

    __slots__ = (
        "avoid",
        "durations",
        "entries",
        "gone",
        "has_one_size",
        "is_plain",
        "iterated",
        "key",
        "least_cores",
        "never",
        "number",
        "request",
        "served",
        "target",
    )

    def __init__(self, key: Key, number: int, target: Target, never: str | None, durations: Durations) -> None:
        self.key = key
        self.request = key[0]
        self.avoid = key[2]
        """Name of the node on which the last attempts of its jobs failed; empty in lines of other jobs."""
        self.target = target
        """Where its jobs can run."""
        self.is_plain = not (self.avoid or self.request.extra)
        """Whether nothing but free cores, GPUs and memory on any of its nodes decides if its first job fits."""
        cores, nodes = self.request.cores, self.request.nodes
        self.has_one_size = (
            cores is not None and cores.least == cores.most and (nodes is None or nodes.least == nodes.most)
        )
        """Whether all grants are equal: with a range, a later one may be larger than the current one."""
        self.never = never
        """Why the nodes of the run can never satisfy the request; None if they can."""
        self.number = number
        self.least_cores = target.least_cores(self.request)
        self.entries: ArrivalOrder | PriorityOrder = ArrivalOrder()
        self.served = 0.0
        """Time of the last start from this line, or of the first arrival in the empty line."""
        self.durations = durations
        """Durations shared by all lines with the same request."""
        self.gone = 0
        """Upper bound of the entries whose jobs have become final since the last `remove_final`."""
        self.iterated: dict[QueueEntry, None] = {}
        """Its entries of jobs with iterations, which wait for many attempts each."""

    def head(self, left: float = math.inf) -> Head | None:
        """The first entry as a sortable tuple.

        None when the line is empty, or when the wall time of the entry is longer than `left` seconds.
        """
        entries = self.entries
        while (entry := entries.first()) is not None:
            position = entry.first_ready()
            if position is not None:
                order = entry.job.seq + entry.rank
                return (order, position, self.number, self) if entry.wall_time <= left else None
            entries.take_first()
            entry.in_line = False
            self.iterated.pop(entry, None)
        return None

    @property
    def first(self) -> QueueEntry:
        """The first entry of a line that is not empty."""
        entry = self.entries.first()
        assert entry is not None
        return entry

    def remove_final(self) -> None:
        """Remove entries with nothing left to start, which a line that is not served would keep forever."""

        def stays(entry: QueueEntry) -> bool:
            entry.in_line = entry.first_ready() is not None
            if not entry.in_line:
                self.iterated.pop(entry, None)
            return entry.in_line

        self.entries.keep(stays)
        self.gone = 0

    def take(self, position: int, now: float) -> Job:
        """Take `position` of the first entry for a start; returns the job."""
        if position < 0:
            entry = self.entries.take_first()
            entry.fresh = None
            entry.in_line = False
        else:
            entry = self.first
            entry.take(position)
        self.served = now
        return entry.job


Head = tuple[int, int, int, QueueLine]
"""The first entry of a line: its order in the queue, position, line number, line."""


def rounded_up(wall_time: float) -> float:
    """Round up to one of sixteen steps between two powers of two, by a sixteenth at most."""
    _, exponent = math.frexp(wall_time)
    step = math.ldexp(1.0, exponent - 5)
    return math.ceil(wall_time / step) * step


class Queue:
    """All jobs that are ready to start, by resource request and wall time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.lines: dict[Key, QueueLine] = {}
        """Lines by key; empty lines are dropped in the next scheduling pass."""
        self.durations: dict[ResourceRequest, Durations] = {}
        """Durations of attempts by request, including requests without waiting jobs."""
        self._number = 0

    def line(self, request: ResourceRequest, wall_time: float | None = None, avoid: str = "") -> QueueLine:
        """The line of a request. `avoid`: a node on which the last attempt failed."""
        key = (request, wall_time or 0.0, avoid)
        line = self.lines.get(key)
        if line is None and wall_time and len(self.lines) >= MANY_LINES:
            key = (request, rounded_up(wall_time), avoid)
            line = self.lines.get(key)
        if line is None:
            self._number += 1
            durations = self._durations_of(request)
            never = self._pool.why_never(request)
            line = QueueLine(key, self._number, self._pool.target(request), never, durations)
            self.lines[key] = line
        return line

    def _durations_of(self, request: ResourceRequest) -> Durations:
        """The durations of attempts with this request, also of jobs that are final, unless there are many requests."""
        durations = self.durations.get(request)
        if durations is None:
            if len(self.durations) >= MANY_REQUESTS:
                del self.durations[next(iter(self.durations))]
            durations = self.durations[request] = Durations()
        return durations

    def add(self, entry: QueueEntry, now: float) -> None:
        if not entry.in_line:
            entry.in_line = True
            # Its line may have been dropped when empty, and another one created for the same key.
            line = entry.line = self.lines.setdefault(entry.line.key, entry.line)
            if entry.rank and isinstance(line.entries, ArrivalOrder):
                line.entries = PriorityOrder(line.entries)
            if line.entries.add(entry):
                line.served = now
            if entry.job.iterations is not None:
                line.iterated[entry] = None

    def note_final(self, job: Job) -> None:
        """Let nothing of a final job be started. A line is cleaned up when half of it is final: constant cost for each
        entry."""
        for entry in job.entries if job.iterations is None else job.all_entries():
            if entry.in_line:
                self.drop_ready(entry)

    def drop_ready(self, entry: QueueEntry) -> None:
        """Let nothing of an entry be started: its job is final, held, or has other entries now."""
        entry.fresh = entry.ready = None  # it stays in its line for now, and its job may be run again
        if entry.in_line:
            entry.line.gone += 1
            if 2 * entry.line.gone > len(entry.line.entries):
                entry.line.remove_final()

    def heads(self, overdue: float, left: float, *, as_if_idle: bool = False) -> list[Head]:
        """The heads of the lines to consider in a pass, as a heap in order of priority and arrival.

        A line is considered if it needs at most the cores that are free where its jobs can run, or was not served
        since `overdue`, and if its first entry has a wall time of at most `left` seconds. `as_if_idle`: all cores count
        as free. If there is one, lines that need more cores follow, because the others would overtake them.
        """
        heads = []
        empty = []
        larger = []
        for line in self.lines.values():
            if not line.entries:
                empty.append(line)
                continue
            cores = line.target.total_cores if as_if_idle else line.target.free_cores
            if line.least_cores <= cores or line.served <= overdue:
                head = line.head(left)
                if head is not None:
                    heads.append(head)
            elif not as_if_idle:
                larger.append(line)
        if heads and larger:
            heads += [head for line in larger if (head := line.head(left)) is not None]
        for line in empty:
            del self.lines[line.key]
        heapq.heapify(heads)
        return heads
