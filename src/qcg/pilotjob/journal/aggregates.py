"""Queries that aggregate a whole run in SQLite: four times as fast as with a record for each row."""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from qcg.pilotjob.core.job_states import STATES, State
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.host.records import EndReason
from qcg.pilotjob.journal.encoding import decode_grant
from qcg.pilotjob.journal.end_causes import UNEXPLAINED, cause_of_end
from qcg.pilotjob.journal.queries import (
    ATTEMPT_COLUMNS,
    JOB_COLUMNS,
    QUEUED,
    QUEUED_AGAIN,
    has_past_table,
    past_rows,
    to_attempt,
    to_job,
)
from qcg.pilotjob.journal.records import AttemptRecord, JobRecord

FAILED = int(State.FAILED)

_OF_JOB = "place >= (seq << 32) AND place < ((seq + 1) << 32)"
_RAN = f"state > {QUEUED} AND started > 0"
# The numbers of attempts are checked first: only the rows of repeated attempts cost a search.
_QUEUED_AGAIN = (
    f"CASE WHEN runs.attempt > 1 THEN (SELECT nullif({QUEUED_AGAIN}, 0) FROM past_attempts AS past"
    " WHERE past.place = runs.place AND past.attempt < runs.attempt ORDER BY past.attempt DESC LIMIT 1) END"
)


class Iterated(NamedTuple):
    """A job with iterations, and the known states of its iterations."""

    iterations: int
    state: State
    rest: State | None
    states: Counter[State]


class Times(NamedTuple):
    """Durations in seconds."""

    waited: array[float]
    """From the time at which its job was last queued to start, for each started attempt."""
    ran: array[float]
    """From start to end, for each ended attempt."""


def single_jobs(connection: sqlite3.Connection) -> Counter[State]:
    """Numbers of jobs without iterations by state; an attempt has a more exact state than its job."""
    rows = connection.execute(
        f"SELECT CASE WHEN runs.state > {QUEUED} THEN runs.state ELSE job.state END AS now, count(*)"
        " FROM submitted_jobs AS job LEFT JOIN runs ON place = seq << 32 WHERE iterations = 0 GROUP BY now"
    )
    return Counter({STATES[state]: count for state, count in rows})


def job_states(connection: sqlite3.Connection) -> Counter[State]:
    """Numbers of jobs by state, with and without iterations."""
    rows = connection.execute("SELECT state, count(*) FROM submitted_jobs WHERE iterations > 0 GROUP BY state")
    return single_jobs(connection) + Counter({STATES[state]: count for state, count in rows})


def iterated_jobs(connection: sqlite3.Connection) -> Iterator[Iterated]:
    for seq, iterations, state, rest in connection.execute(
        "SELECT seq, iterations, state, rest FROM submitted_jobs WHERE iterations > 0 ORDER BY seq"
    ):
        counted = iteration_states(connection, seq)
        yield Iterated(iterations, STATES[state], STATES[rest] if rest else None, counted)


def iteration_states(connection: sqlite3.Connection, seq: int) -> Counter[State]:
    """Numbers of iterations of a job by state, for iterations with a row of their own."""
    rows = connection.execute(
        "SELECT state, count(*) FROM runs WHERE place >= (:job << 32) AND place < ((:job + 1) << 32)"
        f" AND state > {QUEUED} GROUP BY state",
        {"job": seq},
    )
    return Counter({STATES[state]: count for state, count in rows})


def first_and_last(connection: sqlite3.Connection) -> tuple[float, float] | None:
    """Time of the first submission and of the last recorded change; None without jobs."""
    first, last = connection.execute(
        "SELECT min(submitted), max(max(submitted, ended, rest_at)) FROM submitted_jobs"
    ).fetchone()
    (of_attempts,) = connection.execute(
        f"SELECT max(max(scheduled, started, ended)) FROM runs WHERE state > {QUEUED}"
    ).fetchone()
    # An attempt that its manager ended has no other record: its job waits again.
    of_earlier = [ended or 0.0 for (ended,) in past_rows(connection, "", "max(ended)")]
    return None if first is None else (first, max(last, of_attempts or 0.0, *of_earlier))


def times(connection: sqlite3.Connection) -> Times:
    """Durations of the latest attempts of all jobs and iterations."""
    waited, ran = array("d"), array("d")
    queued_at = f"coalesce({_QUEUED_AGAIN}, submitted)" if has_past_table(connection) else "submitted"
    for queued, running in connection.execute(
        f"SELECT max(runs.started - {queued_at}, 0.0),"
        " CASE WHEN runs.ended > 0 THEN max(runs.ended - runs.started, 0.0) END"
        f" FROM runs CROSS JOIN submitted_jobs ON seq = place >> 32 WHERE runs.state > {QUEUED} AND runs.started > 0"
    ):
        waited.append(queued)
        if running is not None:
            ran.append(running)
    return Times(waited, ran)


def core_seconds(connection: sqlite3.Connection, last: float) -> dict[str, float]:
    """Core seconds of all attempts by node, including repeated ones; an attempt without an end counts until
    `last`."""
    rows = connection.execute(
        "SELECT granted, sum(CASE WHEN ended > 0 THEN max(ended - started, 0.0) ELSE ? - started END)"
        f" FROM runs WHERE {_RAN} AND granted IS NOT NULL GROUP BY granted",
        (last,),
    )
    earlier = past_rows(
        connection,
        "WHERE started > 0 AND ended > 0 AND granted IS NOT NULL GROUP BY granted",
        "granted, sum(max(ended - started, 0.0))",
    )
    parts: dict[str, list[float]] = {}
    for granted, seconds in chain(rows, earlier):
        for part in decode_grant(granted).parts:
            parts.setdefault(part.node, []).append(len(part.cores) * seconds)
    return {node: math.fsum(seconds) for node, seconds in parts.items()}


class Used(NamedTuple):
    """The resources used by all attempts with one grant, as far as they were measured."""

    grant: Grant
    core_seconds: float
    cpu_seconds: float
    memory: int
    """Peak memory of one attempt, in KiB."""


def used(connection: sqlite3.Connection) -> Iterator[Used]:
    """The resources that all attempts used, including repeated ones; one entry for each grant."""
    condition = "started > 0 AND ended > 0 AND memory > 0 AND granted IS NOT NULL GROUP BY granted"
    columns = "granted, sum(max(ended - started, 0.0)), sum(user + system) / 1e6, max(memory)"
    rows = connection.execute(f"SELECT {columns} FROM runs WHERE state > {QUEUED} AND {condition}")
    for granted, seconds, cpu, memory in chain(rows, past_rows(connection, f"WHERE {condition}", columns)):
        grant = decode_grant(granted)
        yield Used(grant, seconds * grant.ncores, cpu, memory)


def slowest(connection: sqlite3.Connection, most: int) -> list[AttemptRecord]:
    """The attempts with the longest runtime, longest first, then in the order of submission."""
    rows = connection.execute(
        f"SELECT {ATTEMPT_COLUMNS} FROM runs WHERE {_RAN} AND ended > 0 ORDER BY max(ended - started, 0.0) DESC, place"
        " LIMIT ?",
        (most,),
    )
    return [to_attempt(row) for row in rows]


def failed_attempts(connection: sqlite3.Connection, most: int) -> list[AttemptRecord]:
    rows = connection.execute(
        f"SELECT {ATTEMPT_COLUMNS} FROM runs WHERE state = {FAILED} ORDER BY place LIMIT ?", (most,)
    )
    return [to_attempt(row) for row in rows]


def count_failed_attempts(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute(f"SELECT count(*) FROM runs WHERE state = {FAILED}").fetchone()
    return int(count)


def failed_jobs_after(connection: sqlite3.Connection, place: int) -> set[int]:
    """Sequence numbers of at most two jobs with failed attempts behind a place: enough to tell one from several."""
    first, last = connection.execute(
        f"SELECT min(place) >> 32, max(place) >> 32 FROM runs WHERE state = {FAILED} AND place > ?", (place,)
    ).fetchone()
    return set() if first is None else {first, last}


def repeated_attempts(connection: sqlite3.Connection) -> Counter[str]:
    """Numbers of attempts after which their jobs were queued again, by cause."""
    # Few messages differ within a group: only unclear causes are found in messages.
    message = f"CASE WHEN cause IN ('{UNEXPLAINED}', '{EndReason.EXIT}') THEN message END"
    columns = f"cause, exit_code, started > 0, {message} AS unclear, count(*)"
    counts = Counter[str]()
    for cause, exit_code, started, unclear, number in past_rows(
        connection, "GROUP BY cause, exit_code, started > 0, unclear", columns
    ):
        counts[cause_of_end(cause, exit_code, started, unclear or "")] += number
    return counts


def jobs_failed_without_attempt(connection: sqlite3.Connection) -> list[int]:
    """Sequence numbers of FAILED jobs without a failed attempt."""
    rows = connection.execute(
        f"SELECT seq FROM jobs WHERE state = {FAILED}"
        f" AND NOT EXISTS (SELECT 1 FROM runs WHERE {_OF_JOB} AND runs.state = {FAILED}) ORDER BY seq"
    )
    return [seq for (seq,) in rows]


def jobs_in(connection: sqlite3.Connection, state: State, most: int) -> list[JobRecord]:
    """The first jobs in a state, in the order of submission."""
    rows = connection.execute(
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE state = ? ORDER BY seq LIMIT ?", (int(state), most)
    )
    return [to_job(row) for row in rows]
