"""The job queue: one line for each distinct resource request, ordered by arrival between the heads of the lines.

A job is an entry in the line of its request. An iterated job is one entry, however many iterations it has; only if its
iterations have different sizes (`maximum-iters`) is it one entry for each size.
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
"""Identity of a line: a resource request and a wall time, 0 for none."""

MANY_LINES = 256
"""Number of lines from which on similar wall times share a line: a scheduling pass visits every line, so its cost must
not grow with the number of distinct wall times."""


class QueueEntry:
    """A job in one line of the queue, and which of its iterations can be started."""

    __slots__ = ("fresh", "in_line", "job", "line", "ready", "size", "wall_time")

    def __init__(self, job: Job, line: QueueLine, wall_time: float | None = None, size: int | None = None) -> None:
        self.job = job
        self.line = line
        self.wall_time = wall_time or 0.0
        """Wall time of each attempt in seconds, 0 for none; may differ slightly from that of the line."""
        self.size = size
        """Size of the iterations of this entry, if the job has iterations of several sizes."""
        self.fresh: int | None = None
        """Position from which on all queued iterations can be started; -1 for a job without iterations."""
        self.ready: list[int] | None = None
        """Heap of single positions that can be started as well: same-index dependencies met, or attempts to repeat."""
        self.in_line = False

    def make_ready(self, position: int) -> None:
        """Let one position be started, independently of the others."""
        if position < 0:
            self.fresh = position
        elif self.ready is None:
            self.ready = [position]
        else:
            heapq.heappush(self.ready, position)

    def next(self) -> int | None:
        """The first position that can be started, or None; positions that are no longer queued are skipped."""
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
        """Take out the position that `next` returned."""
        if position == self.fresh:
            self.fresh = position + 1
        elif self.ready is not None:
            heapq.heappop(self.ready)

    def can_reach(self, position: int) -> bool:
        """Whether `next` will return this position at some time."""
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
    """Recent durations of attempts with the same resource request."""

    __slots__ = ("__weakref__", "longest", "mean")

    def __init__(self) -> None:
        self.longest: float | None = None
        """Longest recent duration in seconds, slowly decaying; None before the first attempt has ended."""
        self.mean = 0.0
        """Moving average in seconds."""


class QueueLine:
    """The entries with the same resource request and the same, or nearly the same, wall time."""

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
        """Why the nodes of the run can never satisfy the request; None if they can."""
        self.number = number
        self.least_cores = least_cores(self.request)
        self.entries = ArrivalOrder()
        self.served = 0.0
        """Time of the last start from this line, or of the first arrival in the empty line."""
        self.durations = durations
        """Durations shared by all lines with the same request."""
        self.gone = 0
        """Upper bound of the entries whose jobs have become final since the last `remove_final`."""

    def head(self, left: float = math.inf) -> tuple[int, int, int, QueueLine] | None:
        """The first entry as a sortable tuple: job number, position, line number, line.

        None when the line is empty, or when the wall time of the entry is longer than `left` seconds.
        """
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
        """The first entry of a line that is not empty."""
        entry = self.entries.first()
        assert entry is not None
        return entry

    def remove_final(self) -> None:
        """Remove entries with nothing left to start, which a line that is not served would keep forever."""

        def stays(entry: QueueEntry) -> bool:
            entry.in_line = entry.next() is not None
            return entry.in_line

        self.entries.keep(stays)
        self.gone = 0

    def take(self, position: int, now: float) -> Job:
        """Take `position` of the first entry for a start; returns the job."""
        entry = self.first
        entry.take(position)
        if position < 0:
            self.entries.drop_first()
            entry.in_line = False
        self.served = now
        return entry.job


def rounded_up(wall_time: float) -> float:
    """Round up to one of sixteen steps between two powers of two, by a sixteenth at most."""
    _, exponent = math.frexp(wall_time)
    step = math.ldexp(1.0, exponent - 5)
    return math.ceil(wall_time / step) * step


class Queue:
    """All jobs that are ready to start, by resource request and wall time."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self._nodes = nodes
        self.lines: dict[Key, QueueLine] = {}
        """Lines by key; empty lines are dropped in the next scheduling pass."""
        self._paces: WeakValueDictionary[ResourceRequest, Durations] = WeakValueDictionary()
        self._number = 0

    def line(self, request: ResourceRequest, wall_time: float | None = None) -> QueueLine:
        key = (request, wall_time or 0.0)
        line = self.lines.get(key)
        if line is None and wall_time and len(self.lines) >= MANY_LINES:
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
            # Its line may have been dropped when empty, and another one created for the same key.
            entry.line = self.lines.setdefault(entry.line.key, entry.line)
            if not entry.line.entries:
                entry.line.served = now
            entry.line.entries.add(entry)

    def job_is_final(self, job: Job) -> None:
        """Note that a job is final. A line is cleaned up when half of it is final: constant cost for each entry."""
        for entry in job.entries:
            if entry.in_line:
                entry.line.gone += 1
                if 2 * entry.line.gone > len(entry.line.entries):
                    entry.line.remove_final()

    def heads(self, free_cores: int, overdue: float, left: float) -> list[tuple[int, int, int, QueueLine]]:
        """The heads of the lines to consider in a pass, as a heap in order of arrival.

        A line is considered if it needs at most `free_cores` or was not served since `overdue`, and if its first entry
        has a wall time of at most `left` seconds.
        """
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
