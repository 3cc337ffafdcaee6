"""The queue: one line for each distinct request, and the arrival order between the heads of the lines.

A job stands in the line of its request. An iterated job is one entry, however many iterations it has; only where its
iterations get different sizes (`maximum-iters`) it is one entry for each size.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from weakref import WeakValueDictionary

from qcg.pilotjob.core.arrival_order import ArrivalOrder
from qcg.pilotjob.core.feasibility import least_cores, why_never
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import QUEUED
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import ResourceRequest

Key = tuple[ResourceRequest, float]
"""What a line is for: a request, and the wall time of those who ask; 0 where they have none."""

MANY = 256
"""Lines from which on similar wall times share one: a look at all lines must not get dearer with every job that has a
wall time of its own."""


class QueueEntry:
    """A job's place in one line, and which of its iterations can be started from there."""

    __slots__ = ("fresh", "in_line", "job", "line", "ready", "size", "wall_time")

    def __init__(self, job: Job, line: QueueLine, wall_time: float | None = None, size: int | None = None) -> None:
        self.job = job
        self.line = line
        self.wall_time = wall_time or 0.0
        """Of each of its runs; 0 where it has none. Others in the same line may ask for a little more or less."""
        self.size = size
        """Of the iterations that belong here, where the job has iterations of several sizes."""
        self.fresh: int | None = None
        """From this position on, all that are queued can be started. -1 is a job without iterations."""
        self.ready: list[int] | None = None
        """A heap of positions besides: iterations whose own dependencies are met, runs to repeat. Few jobs need it."""
        self.in_line = False

    def make_ready(self, position: int) -> None:
        """This one can be started, whatever holds for others."""
        if position < 0:
            self.fresh = position
        elif self.ready is None:
            self.ready = [position]
        else:
            heapq.heappush(self.ready, position)

    def next(self) -> int | None:
        """The first position that can be started, or None. Those that are not queued any more are passed over."""
        job = self.job
        if job.iterations is None:
            return -1 if self.fresh == -1 and job.state is QUEUED else None
        if job.state.is_final:
            return None
        ready = self.ready
        if ready is None:
            return self._next_fresh(job.iterations)
        states = job.iterations.states
        while ready and states[ready[0]] != QUEUED:
            heapq.heappop(ready)
        fresh = self._next_fresh(job.iterations)
        if ready and (fresh is None or ready[0] <= fresh):
            return ready[0]
        return fresh

    def take(self, position: int) -> None:
        """Start what `next` has told."""
        if position == self.fresh:
            self.fresh = position + 1
        elif self.ready is not None:
            heapq.heappop(self.ready)

    def can_reach(self, position: int) -> bool:
        return position in (self.ready or ()) or (self.fresh is not None and self.fresh <= position)

    def _next_fresh(self, iterations: Iterations) -> int | None:
        if self.fresh is None:
            return None
        position = iterations.states.find(QUEUED, self.fresh)
        if iterations.plan is not None and self.size is not None:
            while position >= 0 and (of_size := iterations.plan.next_of(self.size, position)) != position:
                position = -1 if of_size is None else iterations.states.find(QUEUED, of_size)
        self.fresh = position if position >= 0 else None
        return self.fresh


class Durations:
    """How long runs that ask for the same have taken of late."""

    __slots__ = ("__weakref__", "longest", "mean")

    def __init__(self) -> None:
        self.longest: float | None = None
        """Seconds; None before the first has ended."""
        self.mean = 0.0
        """On average."""


class QueueLine:
    """All entries that ask for the same, for the same time or one that is nearly the same."""

    __slots__ = (
        "durations",
        "entries",
        "gone",
        "key",
        "least_cores",
        "never",
        "number",
        "request",
        "served",
    )

    def __init__(self, key: Key, number: int, never: str | None, durations: Durations) -> None:
        self.key = key
        self.request = key[0]
        self.never = never
        """Why this can never be given, if so."""
        self.number = number
        self.least_cores = least_cores(self.request)
        self.entries = ArrivalOrder()
        self.served = 0.0
        """When somebody of this line was started last, or came to an empty line."""
        self.durations = durations
        """All lines with the same request have it in common."""
        self.gone = 0
        """Entries of jobs that have ended since the last `tidy`; some may have left from the head by themselves."""

    def head(self, left: float = math.inf) -> tuple[int, int, int, QueueLine] | None:
        """Where this line stands in the order of arrival: (job, iteration, line number, line); nowhere when its first
        would not be done within `left` seconds."""
        entries = self.entries
        while (entry := entries.first()) is not None:
            position = entry.next()
            if position is not None:
                return (entry.job.seq, position, self.number, self) if entry.wall_time <= left else None
            entries.drop_first()
            entry.in_line = False
        return None

    @property
    def first(self) -> QueueEntry:
        """The entry at the head, where there is one."""
        entry = self.entries.first()
        assert entry is not None
        return entry

    def remove_final(self) -> None:
        """Take out all that would be passed over. A line that is not served keeps them for ever otherwise."""

        def stays(entry: QueueEntry) -> bool:
            entry.in_line = entry.next() is not None
            return entry.in_line

        self.entries.keep(stays)
        self.gone = 0

    def take(self, position: int, now: float) -> Job:
        """The job at the head, whose iteration `position` is started."""
        entry = self.first
        entry.take(position)
        if position < 0:
            self.entries.drop_first()
            entry.in_line = False
        self.served = now
        return entry.job


def rounded_up(wall_time: float) -> float:
    """To one of sixteen steps between two powers of two: by a sixteenth at most."""
    _, exponent = math.frexp(wall_time)
    step = math.ldexp(1.0, exponent - 5)
    return math.ceil(wall_time / step) * step


class Queue:
    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self._nodes = nodes
        self.lines: dict[Key, QueueLine] = {}
        """Those in which somebody stands; one that ran empty goes at the next look."""
        self._paces: WeakValueDictionary[ResourceRequest, Durations] = WeakValueDictionary()
        self._number = 0

    def line(self, request: ResourceRequest, wall_time: float | None = None) -> QueueLine:
        key = (request, wall_time or 0.0)
        line = self.lines.get(key)
        if line is None and wall_time and len(self.lines) >= MANY:
            key = (request, rounded_up(wall_time))
            line = self.lines.get(key)
        if line is None:
            self._number += 1
            durations = self._paces.setdefault(request, Durations())
            line = QueueLine(key, self._number, why_never(request, self._nodes), durations)
            self.lines[key] = line
        return line

    def add(self, entry: QueueEntry, now: float) -> None:
        if not entry.in_line:
            entry.in_line = True
            # Its line may have run empty and been dropped, and another one begun.
            entry.line = self.lines.setdefault(entry.line.key, entry.line)
            if not entry.line.entries:
                entry.line.served = now
            entry.line.entries.add(entry)

    def job_is_final(self, job: Job) -> None:
        """The job is final. A line is tidied when half of it has gone, so that each costs no more than a few looks."""
        for entry in job.entries:
            if entry.in_line:
                entry.line.gone += 1
                if 2 * entry.line.gone > len(entry.line.entries):
                    entry.line.remove_final()

    def heads(self, free_cores: int, overdue: float, left: float) -> list[tuple[int, int, int, QueueLine]]:
        """The heads of all lines that could fit into so many cores, or were not served since `overdue`, and that would
        be done within `left` seconds; as a heap in order of arrival."""
        heads = []
        empty = []
        for line in self.lines.values():
            if not line.entries:
                empty.append(line)
            elif line.least_cores <= free_cores or line.served <= overdue:
                head = line.head(left)
                if head is not None:
                    heads.append(head)
        for line in empty:
            del self.lines[line.key]
        heapq.heapify(heads)
        return heads
