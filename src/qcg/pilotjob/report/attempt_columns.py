"""All attempts of a registry, column by column: a million take tens of megabytes, not a gigabyte."""

from __future__ import annotations

import re
import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import Any

from msgspec import DecodeError, Struct

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import NodePart
from qcg.pilotjob.description.iteration import Iteration
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.descriptions import DamagedDescription, decode_description
from qcg.pilotjob.journal.encoding import decode_grant
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.metadata import RESOURCES, DamagedMetadata, NodeSize
from qcg.pilotjob.journal.schema import seq_and_position

ROWS = 10_000
"""Rows that are converted at a time."""
QUEUED, FAILED, CANCELED = int(State.QUEUED), int(State.FAILED), int(State.CANCELED)
_STARTED = "started > 0 AND granted IS NOT NULL"
_PAST_STATE = f"CASE WHEN {queries.PAST_FAILED} THEN {FAILED} ELSE {CANCELED} END"


class JobNames(Struct):
    """Names of jobs by sequence number."""

    seqs: array[int]
    """Sorted."""
    text: bytes
    """All names, one after another."""
    offsets: array[int]
    """Offset of the name of each job in `text`, and the end of the last name."""
    iterations: dict[int, Iteration | None]
    """The iterations of each iterated job; None if its description is damaged."""

    def name(self, place: int) -> str:
        """The name of a job or iteration, from its key in the registry."""
        seq, position = seq_and_position(place)
        index = bisect_left(self.seqs, seq)
        if index == len(self.seqs) or self.seqs[index] != seq:
            return f"(removed job {seq})"
        name = self.text[self.offsets[index] : self.offsets[index + 1]].decode("utf-8", "replace")
        if position < 0:
            return name
        return f"{name}:{index_of(self.iterations.get(seq), position)}"


class AttemptColumns(Struct):
    """All attempts that have started, including repeated ones."""

    places: array[int]
    numbers: array[int]
    states: array[int]
    scheduled: array[float]
    starts: array[float]
    ends: array[float]
    """0 for attempts without an end."""
    grants: array[int]
    """Indices in `parts`."""
    parts: list[tuple[NodePart, ...]]
    """The different grants."""
    names: JobNames
    nodes: list[NodeSize]
    """The nodes of the last manager; empty where they are not known."""
    submitted: float
    """Time of the first submission; 0 without jobs."""


def read_columns(connection: sqlite3.Connection) -> AttemptColumns:
    """Read all attempts. Raises JournalError for cells that no manager has written."""
    places, numbers, states = array("q"), array("I"), array("B")
    scheduled, starts, ends, grants = array("d"), array("d"), array("d"), array("I")
    targets: list[array[Any]] = [places, numbers, states, scheduled, starts, ends]
    known = _Numbered()
    columns = "place, attempt, {}, scheduled, started, ended, granted"
    latest = connection.execute(f"SELECT {columns.format('state')} FROM runs WHERE state > {QUEUED} AND {_STARTED}")
    earlier = queries.past_rows(connection, f"WHERE {_STARTED}", columns.format(_PAST_STATE))
    try:
        for rows in chain(_chunks(latest), _chunks(earlier)):
            *values, granted = zip(*rows, strict=True)
            for target, column in zip(targets, values, strict=True):
                target.extend(column)
            grants.extend(map(known.__getitem__, granted))
        return AttemptColumns(
            places,
            numbers,
            states,
            scheduled,
            starts,
            ends,
            grants,
            [decode_grant(granted).parts for granted in known],
            _names(connection),
            _nodes(connection),
            float(connection.execute("SELECT coalesce(min(submitted), 0) FROM submitted_jobs").fetchone()[0]),
        )
    except (TypeError, ValueError, OverflowError, DecodeError) as error:
        raise JournalError(f"The registry is damaged: an attempt could not be read: {error}.") from error


class _Numbered(dict[Any, int]):
    """Numbers keys in the order of their first lookup."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


def _chunks(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    chunk: list[tuple[Any, ...]] = []
    if isinstance(rows, sqlite3.Cursor):
        while chunk := rows.fetchmany(ROWS):
            yield chunk
        return
    for row in rows:
        chunk.append(row)
        if len(chunk) == ROWS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _names(connection: sqlite3.Connection) -> JobNames:
    seqs, lengths, texts = array("q"), array("I"), []
    # As bytes: most names are never shown.
    for rows in _chunks(connection.execute("SELECT seq, CAST(name AS BLOB) FROM submitted_jobs ORDER BY seq")):
        numbers, names = zip(*rows, strict=True)
        seqs.extend(numbers)
        lengths.extend(map(len, names))
        texts.append(b"".join(names))
    iterated = connection.execute("SELECT seq, name, spec FROM submitted_jobs WHERE iterations > 0")
    return JobNames(
        seqs,
        b"".join(texts),
        array("Q", accumulate(lengths, initial=0)),
        {seq: stored_iteration(seq, name, spec) for seq, name, spec in iterated},
    )


def stored_iteration(seq: int, name: str, spec: bytes) -> Iteration | None:
    """The iterations of a job; None where its description is damaged."""
    try:
        return decode_description(spec, seq, name).iteration
    except DamagedDescription:
        return None


def index_of(iteration: Iteration | None, position: int) -> int:
    """The index of the iteration at a position; the position itself where the description is damaged."""
    try:
        return position if iteration is None else iteration.index(position)
    except IndexError:  # the description of another job
        return position


def _nodes(connection: sqlite3.Connection) -> list[NodeSize]:
    try:
        return RESOURCES.read(connection) or []
    except DamagedMetadata:
        return []


def natural_order(name: str) -> list[tuple[int, str]]:
    """A key that sorts `n2` before `n10`."""
    return [(int(part), "") if part.isdecimal() and len(part) < 20 else (-1, part) for part in re.split(r"(\d+)", name)]
