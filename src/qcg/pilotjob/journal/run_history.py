"""The history of a run from its registry: use of cores, starts, ends and failures, in bins.

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
"""Attempts, or jobs, in a part."""
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


def parts_of_jobs(connection: sqlite3.Connection) -> Iterator[tuple[int, int]]:
    """Ranges of job numbers that hold all jobs of a registry."""
    return _numbers(connection, "seq", "submitted_jobs")


def parts_of_past(connection: sqlite3.Connection) -> Iterator[tuple[int, int]]:
    """Ranges of numbers that hold all attempts that were repeated."""
    return _numbers(connection, "number", "past_attempts") if has_past_attempts(connection) else iter(())


def _numbers(connection: sqlite3.Connection, key: str, table: str) -> Iterator[tuple[int, int]]:
    (first,) = connection.execute(f"SELECT min({key}) FROM {table}").fetchone()
    (last,) = connection.execute(f"SELECT max({key}) FROM {table}").fetchone()
    if first is not None:
        for begin in range(first, last + 1, PART):
            yield begin, begin + PART


def first_submission(connection: sqlite3.Connection) -> float | None:
    """Time of the first submission; None without jobs."""
    row = connection.execute("SELECT submitted FROM submitted_jobs ORDER BY seq LIMIT 1").fetchone()
    return None if row is None else float(row[0])


class Course:
    """Reads starts and ends of attempts up to a time, in bins."""

    def __init__(self, connection: sqlite3.Connection, first: float, width: float, until: float) -> None:
        self._connection = connection
        self._values = {"origin": first, "width": width, "until": until}

    def starts(self, part: tuple[int, int], *, past: bool = False) -> Iterator[Edges]:
        """Starts of the attempts in a part; `past`: of attempts that were repeated."""
        return self._edges(part, "max(started, :origin)", "started <= :until", past)

    def ends(self, part: tuple[int, int], *, past: bool = False) -> Iterator[Edges]:
        """Ends of the attempts in a part."""
        condition = "started <= :until AND ended > 0 AND ended <= :until"
        return self._edges(part, "max(ended, started, :origin)", condition, past)

    def failures(self, part: tuple[int, int], *, past: bool = False) -> Iterator[tuple[int, int]]:
        """Bins with the numbers of failed attempts of a part that ended there."""
        in_part = (
            f"past_attempts WHERE number >= :first AND number < :end AND {PAST_FAILED}"
            if past
            else f"runs WHERE place >= :first AND place < :end AND state = {FAILED}"
        )
        yield from self._connection.execute(
            f"SELECT CAST((max(ended, :origin) - :origin) / :width AS INTEGER) AS bin, count(*) FROM {in_part}"
            " AND granted IS NOT NULL AND ended <= :until GROUP BY bin",
            {**self._values, "first": part[0], "end": part[1]},
        )

    def _edges(self, part: tuple[int, int], at: str, condition: str, past: bool) -> Iterator[Edges]:
        in_part = (
            "past_attempts WHERE number >= :first AND number < :end"
            if past
            else f"runs WHERE place >= :first AND place < :end AND state > {QUEUED}"
        )
        query = (
            f"SELECT CAST(({at} - :origin) / :width AS INTEGER) AS bin, granted, count(*), sum({at} - :origin)"
            f" FROM {in_part} AND started > 0 AND granted IS NOT NULL AND {condition} GROUP BY bin, granted"
        )
        values = {**self._values, "first": part[0], "end": part[1]}
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


def failures_without_attempt(connection: sqlite3.Connection, part: tuple[int, int]) -> Iterator[Failures]:
    """Jobs without iterations in a part of the jobs that failed without an attempt, by message."""
    rows = connection.execute(
        f"SELECT message, count(*), min(seq) FROM submitted_jobs WHERE seq >= ? AND seq < ? AND state = {FAILED}"
        f" AND iterations = 0 AND NOT EXISTS (SELECT 1 FROM runs WHERE place = seq << 32 AND state >= {FINAL})"
        " GROUP BY message",
        part,
    )
    for message, number, first in rows:
        yield Failures(message or "", number, (first, -1))
