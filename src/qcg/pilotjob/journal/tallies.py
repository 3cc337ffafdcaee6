"""Questions to the registry about all of a run at once. SQLite adds up: it takes a quarter of
the time that records made of all rows would take, and somebody waits for the answer."""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from qcg.pilotjob.core.job_states import STATES, State
from qcg.pilotjob.journal.grants import decode_grant
from qcg.pilotjob.journal.reading import JOB_COLUMNS, QUEUED, RUN_COLUMNS, to_job, to_run
from qcg.pilotjob.journal.records import JobRecord, RunRecord

FAILED = int(State.FAILED)

_OF_JOB = "place >= (seq << 32) AND place < ((seq + 1) << 32)"
_RAN = f"state > {QUEUED} AND started > 0"


class Iterated(NamedTuple):
    """A job that has iterations, and how many of them are known to be in which state."""

    iterations: int
    state: State
    rest: State | None
    states: Counter[State]


class Times(NamedTuple):
    """Seconds."""

    waited: array[float]
    """From submission to start, of everything that has started."""
    ran: array[float]
    """From start to end, of everything that has ended as well."""


def single_jobs(connection: sqlite3.Connection) -> Counter[State]:
    """Jobs without iterations by state; the run of a job knows better than the job."""
    rows = connection.execute(
        f"SELECT CASE WHEN runs.state > {QUEUED} THEN runs.state ELSE job.state END AS now, count(*)"
        " FROM submitted_jobs AS job LEFT JOIN runs ON place = seq << 32 WHERE iterations = 0 GROUP BY now"
    )
    return Counter({STATES[state]: count for state, count in rows})


def job_states(connection: sqlite3.Connection) -> Counter[State]:
    """Jobs with and without iterations by state."""
    rows = connection.execute("SELECT state, count(*) FROM submitted_jobs WHERE iterations > 0 GROUP BY state")
    return single_jobs(connection) + Counter({STATES[state]: count for state, count in rows})


def iterated_jobs(connection: sqlite3.Connection) -> Iterator[Iterated]:
    for seq, iterations, state, rest in connection.execute(
        "SELECT seq, iterations, state, rest FROM submitted_jobs WHERE iterations > 0 ORDER BY seq"
    ):
        counted = iteration_states(connection, seq)
        yield Iterated(iterations, STATES[state], STATES[rest] if rest else None, counted)


def iteration_states(connection: sqlite3.Connection, seq: int) -> Counter[State]:
    """Iterations of a job by state, as far as each has a state of its own."""
    rows = connection.execute(
        "SELECT state, count(*) FROM runs WHERE place >= (:job << 32) AND place < ((:job + 1) << 32)"
        f" AND state > {QUEUED} GROUP BY state",
        {"job": seq},
    )
    return Counter({STATES[state]: count for state, count in rows})


def first_and_last(connection: sqlite3.Connection) -> tuple[float, float] | None:
    """When the first job was submitted, and the last thing that is known to have happened. None without jobs."""
    first, last = connection.execute(
        "SELECT min(submitted), max(max(submitted, ended, rest_at)) FROM submitted_jobs"
    ).fetchone()
    (of_runs,) = connection.execute(
        f"SELECT max(max(scheduled, started, ended)) FROM runs WHERE state > {QUEUED}"
    ).fetchone()
    return None if first is None else (first, max(last, of_runs or 0.0))


def times(connection: sqlite3.Connection) -> Times:
    waited, ran = array("d"), array("d")
    for queued, running in connection.execute(
        "SELECT max(runs.started - submitted, 0.0),"
        " CASE WHEN runs.ended > 0 THEN max(runs.ended - runs.started, 0.0) END"
        f" FROM runs CROSS JOIN submitted_jobs ON seq = place >> 32 WHERE runs.state > {QUEUED} AND runs.started > 0"
    ):
        waited.append(queued)
        if running is not None:
            ran.append(running)
    return Times(waited, ran)


def core_seconds(connection: sqlite3.Connection, last: float) -> float:
    """What all runs had to themselves; those under way until `last`."""
    rows = connection.execute(
        "SELECT granted, sum(CASE WHEN ended > 0 THEN max(ended - started, 0.0) ELSE ? - started END)"
        f" FROM runs WHERE {_RAN} AND granted IS NOT NULL GROUP BY granted",
        (last,),
    )
    return math.fsum(decode_grant(granted).ncores * seconds for granted, seconds in rows)


def slowest(connection: sqlite3.Connection, most: int) -> list[RunRecord]:
    """The longest first; of those that took as long, the one that was submitted first."""
    rows = connection.execute(
        f"SELECT {RUN_COLUMNS} FROM runs WHERE {_RAN} AND ended > 0 ORDER BY max(ended - started, 0.0) DESC, place"
        " LIMIT ?",
        (most,),
    )
    return [to_run(row) for row in rows]


def failed_runs(connection: sqlite3.Connection, most: int) -> list[RunRecord]:
    rows = connection.execute(f"SELECT {RUN_COLUMNS} FROM runs WHERE state = {FAILED} ORDER BY place LIMIT ?", (most,))
    return [to_run(row) for row in rows]


def count_failed_runs(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute(f"SELECT count(*) FROM runs WHERE state = {FAILED}").fetchone()
    return int(count)


def jobs_failed_without_a_run(connection: sqlite3.Connection) -> list[int]:
    """Their numbers: those of which no run has failed."""
    rows = connection.execute(
        f"SELECT seq FROM jobs WHERE state = {FAILED}"
        f" AND NOT EXISTS (SELECT 1 FROM runs WHERE {_OF_JOB} AND runs.state = {FAILED}) ORDER BY seq"
    )
    return [seq for (seq,) in rows]


def jobs_in(connection: sqlite3.Connection, state: State, most: int) -> list[JobRecord]:
    """In the order of submission."""
    rows = connection.execute(
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE state = ? ORDER BY seq LIMIT ?", (int(state), most)
    )
    return [to_job(row) for row in rows]
