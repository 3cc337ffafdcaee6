"""What a registry knows of the course of a run: use of cores, starts, ends and failures, in bins.

A run may have millions of attempts. Each function handles a part of them, so that a manager can do other things in
between.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal.encoding import decode_grant
from qcg.pilotjob.journal.queries import PAST_FAILED, QUEUED, past_rows
from qcg.pilotjob.journal.schema import FINAL, seq_and_position

PART = 20_000
"""Attempts in a part."""
FAILED = int(State.FAILED)


class Edges(NamedTuple):
    """Attempts that begin, or end, in one bin."""

    bin: int
    number: int
    cores: float
    """Cores of all of them."""
    core_seconds: float
    """Core-seconds from these times to the end of the bin."""


class Failures(NamedTuple):
    message: str
    number: int
    first: tuple[int, int]
    """Number and position of the first one."""


def parts(connection: sqlite3.Connection) -> Iterator[tuple[int, int]]:
    """Ranges of places, from the first to before the second one, that hold all attempts of a registry."""
    first = -1
    while True:
        row = connection.execute(
            "SELECT place FROM runs WHERE place >= ? ORDER BY place LIMIT 1 OFFSET ?", (first, PART)
        ).fetchone()
        yield first, row[0] if row is not None else 1 << 62
        if row is None:
            return
        first = row[0]


def first_submission(connection: sqlite3.Connection) -> float | None:
    """Time of the first submission; None without jobs."""
    row = connection.execute("SELECT submitted FROM submitted_jobs ORDER BY seq LIMIT 1").fetchone()
    return None if row is None else float(row[0])


class Course:
    """Reads starts and ends of attempts up to a time, in bins."""

    def __init__(self, connection: sqlite3.Connection, first: float, width: float, until: float) -> None:
        self._connection = connection
        self._values = {"origin": first, "width": width, "until": until}

    def starts(self, part: tuple[int, int] | None) -> Iterator[Edges]:
        """Starts of the attempts in a part; None: of attempts that were repeated."""
        return self._edges(part, "max(started, :origin)", "started <= :until")

    def ends(self, part: tuple[int, int] | None) -> Iterator[Edges]:
        """Ends of the attempts in a part."""
        return self._edges(part, "max(ended, started, :origin)", "started <= :until AND ended > 0 AND ended <= :until")

    def failures(self, part: tuple[int, int] | None) -> Iterator[tuple[int, int]]:
        """Bins with the numbers of failed attempts that ended there; None: of those that were repeated."""
        values = dict(self._values)
        if part is None:
            if not has_past_attempts(self._connection):
                return
            selected = f"past_attempts WHERE {PAST_FAILED}"
        else:
            values |= {"first": part[0], "end": part[1]}
            selected = f"runs WHERE place >= :first AND place < :end AND state = {FAILED}"
        yield from self._connection.execute(
            f"SELECT CAST((max(ended, :origin) - :origin) / :width AS INTEGER) AS bin, count(*) FROM {selected}"
            " AND granted IS NOT NULL AND ended <= :until GROUP BY bin",
            values,
        )

    def _edges(self, part: tuple[int, int] | None, at: str, condition: str) -> Iterator[Edges]:
        columns = (
            f"CAST(({at} - :origin) / :width AS INTEGER) AS bin, granted, count(*), sum({at} - :origin)",
            f"started > 0 AND granted IS NOT NULL AND {condition} GROUP BY bin, granted",
        )
        values = dict(self._values)
        if part is None:
            if not has_past_attempts(self._connection):
                return
            query = f"SELECT {columns[0]} FROM past_attempts WHERE {columns[1]}"
        else:
            values |= {"first": part[0], "end": part[1]}
            query = (
                f"SELECT {columns[0]} FROM runs WHERE place >= :first AND place < :end AND state > {QUEUED}"
                f" AND {columns[1]}"
            )
        width = values["width"]
        for number, granted, count, seconds in self._connection.execute(query, values):
            cores = decode_grant(granted).ncores
            yield Edges(number, count, cores * count, cores * (count * (number + 1) * width - seconds))


def has_past_attempts(connection: sqlite3.Connection) -> bool:
    """Whether any attempt was repeated."""
    return next(past_rows(connection, "LIMIT 1", "1"), None) is not None


def failures_in(connection: sqlite3.Connection, part: tuple[int, int]) -> Iterator[Failures]:
    """Failed attempts in a part by message."""
    rows = connection.execute(
        f"SELECT message, count(*), min(place) FROM runs WHERE place >= ? AND place < ? AND state = {FAILED}"
        " GROUP BY message",
        part,
    )
    for message, number, first in rows:
        yield Failures(message or "", number, seq_and_position(first))


def failures_without_attempt(connection: sqlite3.Connection) -> Iterator[Failures]:
    """Jobs without iterations that failed without an attempt, by message."""
    rows = connection.execute(
        f"SELECT message, count(*), min(seq) FROM submitted_jobs WHERE state = {FAILED} AND iterations = 0"
        f" AND NOT EXISTS (SELECT 1 FROM runs WHERE place = seq << 32 AND state >= {FINAL}) GROUP BY message"
    )
    for message, number, first in rows:
        yield Failures(message or "", number, (first, -1))
