"""Dependencies between the jobs of a registry, in both directions."""

from __future__ import annotations

import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from zlib import crc32

import msgspec
from msgspec import Struct

from qcg.pilotjob.journal.queries import spec_of
from qcg.pilotjob.watch.job_lists import find_job, job_line
from qcg.pilotjob.watch.source import Dependency

_NAMES_OF_FIELDS = "(instr(spec, CAST('after' AS BLOB)) OR instr(spec, CAST('outcomes' AS BLOB)))"


class GraphNode(Struct, frozen=True):
    name: str
    state: str
    """Empty for a job that was removed."""


class Graph(Struct, frozen=True):
    """Jobs related to one job by dependencies."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[Dependency, ...]
    cut: bool
    """Some nodes were left out."""


class _Dependencies(Struct, frozen=True, gc=False):
    """The part of a description that names other jobs."""

    after: tuple[str, ...] = ()
    outcomes: tuple[tuple[str, str], ...] = ()


_decode = msgspec.msgpack.Decoder(_Dependencies).decode


class DependencyGraph:
    """Finds the jobs that wait for a job. Descriptions name only the prerequisites of a job; the other direction is an
    index of pairs (checksum of a name, number of the job that names it), which grows with the jobs of the run."""

    def __init__(self) -> None:
        self._last_seq = 0
        self._sums = array("Q")
        """Checksum of the name in the upper half, number of the job in the lower half; sorted."""

    def of(self, connection: sqlite3.Connection, name: str) -> list[Dependency]:
        """The dependencies of a job, then dependencies of other jobs on it."""
        job = name.partition(":")[0]
        return [*self._before(connection, job), *self._behind(connection, job)]

    def around(self, connection: sqlite3.Connection, name: str, depth: int, most: int) -> Graph:
        """Jobs within a distance of a job, the nearest first."""
        start = name.partition(":")[0]
        names = {start: 0}
        edges: dict[tuple[str, str, str], Dependency] = {}
        cut = False
        waiting = [start]
        for job in waiting:
            if names[job] >= depth:
                continue
            for edge in self.of(connection, job):
                ends = edge.job.partition(":")[0], edge.on.partition(":")[0]
                other = ends[1] if ends[0] == job else ends[0]
                if other not in names:
                    if len(names) >= most:
                        cut = True
                        continue
                    names[other] = names[job] + 1
                    waiting.append(other)
                edges[edge.job, edge.on, edge.kind] = edge
        nodes = [GraphNode(job, _state_of(connection, job)) for job in names]
        return Graph(tuple(nodes), tuple(edges.values()), cut)

    def _before(self, connection: sqlite3.Connection, job: str) -> Iterator[Dependency]:
        row = connection.execute("SELECT seq FROM submitted_jobs WHERE name = ? LIMIT 1", (job,)).fetchone()
        if row is not None:
            yield from _edges(job, spec_of(connection, row[0]))

    def _behind(self, connection: sqlite3.Connection, job: str) -> Iterator[Dependency]:
        self._grow(connection)
        key = _sum_of(job)
        at = bisect_left(self._sums, key << 32)
        seen: set[int] = set()
        while at < len(self._sums) and self._sums[at] >> 32 == key:
            seq = self._sums[at] & 0xFFFFFFFF
            at += 1
            if seq in seen:
                continue
            seen.add(seq)
            row = connection.execute("SELECT name, spec FROM submitted_jobs WHERE seq = ?", (seq,)).fetchone()
            if row is not None:
                yield from (edge for edge in _edges(row[0], row[1]) if edge.on.partition(":")[0] == job)

    def _grow(self, connection: sqlite3.Connection) -> None:
        """Add the jobs that were submitted since the last call."""
        (last,) = connection.execute("SELECT max(seq) FROM submitted_jobs").fetchone()
        if (last or 0) <= self._last_seq:
            return
        rows = connection.execute(
            f"SELECT seq, name, spec FROM submitted_jobs WHERE seq > ? AND {_NAMES_OF_FIELDS}", (self._last_seq,)
        )
        found = [
            _sum_of(edge.on.partition(":")[0]) << 32 | seq for seq, name, spec in rows for edge in _edges(name, spec)
        ]
        self._sums = array("Q", sorted([*self._sums, *found]) if found else self._sums)
        self._last_seq = last


def _state_of(connection: sqlite3.Connection, name: str) -> str:
    record = find_job(connection, name)
    line = None if record is None else job_line(connection, record.seq)
    return "" if line is None else line.state


def _edges(job: str, spec: bytes | None) -> Iterable[Dependency]:
    try:
        named = _decode(spec or b"")
    except (msgspec.DecodeError, UnicodeDecodeError):  # damaged, or not written by a manager
        return []
    return [
        *(Dependency(job, on, "after") for on in named.after),
        *(Dependency(job, on, kind) for kind, on in named.outcomes),
    ]


def _sum_of(name: str) -> int:
    return crc32(name.encode("utf-8", "surrogatepass"))
