"""SQL queries on the registry. Each takes a connection: of the manager, or to a snapshot."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from qcg.pilotjob.core.job_states import STATES, State
from qcg.pilotjob.host.records import Usage
from qcg.pilotjob.journal.encoding import decode_ends, decode_grant
from qcg.pilotjob.journal.end_causes import cause_of_end, message_of_end
from qcg.pilotjob.journal.metadata import HIGHEST_REMOVED_SEQ
from qcg.pilotjob.journal.records import CAUSES_WITHOUT_FAILURE, AttemptRecord, JobEnded, JobRecord, PastAttemptRecord
from qcg.pilotjob.journal.schema import FINAL, KILLED, STOPPED, TOGETHER, USAGE, place, seq_and_position

QUEUED = int(State.QUEUED)

_USAGE = ", ".join(USAGE)
ATTEMPT_COLUMNS = (
    "place, attempt, runs.state, scheduled, runs.started, runs.ended, pid, exit_code, granted, killed, runs.message,"
    f" {_USAGE}"
)
PAST_COLUMNS = (
    "place, attempt, cause, counted, next_at, scheduled, started, ended, pid, exit_code, granted, message, rerun_at,"
    f" {_USAGE}"
)
PAST_FAILED = f"cause NOT IN {CAUSES_WITHOUT_FAILURE}"
"""Condition for earlier attempts that have failed; the others were ended on purpose."""
QUEUED_AGAIN = "CASE WHEN past.rerun_at > 0 THEN past.rerun_at ELSE past.ended END"
"""`PastAttemptRecord.queued_again` of the row `past`; 0 where it is not known."""
JOB_COLUMNS = "seq, name, submitted, iterations, state, started, ended, message, rest, rest_at"

# CROSS JOIN fixes the order of the loops: job by job, with a range scan of its attempts.
OF_UNFINISHED = (
    "FROM submitted_jobs AS jobs CROSS JOIN runs ON place >= (seq << 32) AND place < ((seq + 1) << 32)"
    f" WHERE jobs.state < {FINAL}"
)
_OF_JOB = "place >= (json_each.value << 32) AND place < ((json_each.value + 1) << 32)"
"""Condition for the rows of a job whose number is in a list in JSON: one query for many jobs, a range scan for each."""


def acked(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT name, acked FROM agents"))


def job_record(connection: sqlite3.Connection, seq: int) -> JobRecord | None:
    row = connection.execute(f"SELECT {JOB_COLUMNS} FROM jobs WHERE seq = ?", (seq,)).fetchone()
    return None if row is None else to_job(row)


def job_records(connection: sqlite3.Connection) -> Iterator[JobRecord]:
    return map(to_job, connection.execute(f"SELECT {JOB_COLUMNS} FROM jobs ORDER BY seq"))


def specs_of(
    connection: sqlite3.Connection, seqs: Collection[int], containing: bytes = b""
) -> Iterator[tuple[int, bytes]]:
    """The encoded descriptions of these jobs that contain certain bytes, by job number."""
    query = "SELECT seq, spec FROM json_each(?) CROSS JOIN submitted_jobs ON seq = json_each.value WHERE instr(spec, ?)"
    yield from connection.execute(query, (json.dumps(list(seqs)), containing))


def spec_of(connection: sqlite3.Connection, seq: int) -> bytes | None:
    row = connection.execute("SELECT spec FROM submitted_jobs WHERE seq = ?", (seq,)).fetchone()
    return None if row is None else row[0]


def attempts_of(
    connection: sqlite3.Connection, seq: int, positions: Iterable[int] | None = None
) -> Iterator[AttemptRecord]:
    """The latest attempt or the end of a job or of its iterations; requeued attempts are left out."""
    if positions is None:
        yield from _attempts_between(connection, place(seq, -1), place(seq + 1, -1))
        return
    for position in positions:
        yield from _attempts_between(connection, place(seq, position), place(seq, position + 1))


def attempts_among(connection: sqlite3.Connection, seq: int, positions: range) -> Iterator[AttemptRecord]:
    """The latest attempts or ends of consecutive iterations of a job."""
    return _attempts_between(connection, place(seq, positions.start), place(seq, positions.stop))


def _attempts_between(connection: sqlite3.Connection, first: int, end: int) -> Iterator[AttemptRecord]:
    query = f"SELECT {ATTEMPT_COLUMNS} FROM runs WHERE state > {QUEUED} AND place >= ? AND place < ?"
    return map(to_attempt, connection.execute(query, (first, end)))


def iteration_states(connection: sqlite3.Connection, seq: int) -> Iterator[tuple[int, State]]:
    """Position and state of each iteration that has started or ended."""
    first = place(seq, 0)
    query = f"SELECT place - ?, state FROM runs WHERE state > {QUEUED} AND place >= ? AND place < ?"
    for position, state in connection.execute(query, (first, first, place(seq + 1, -1))):
        yield position, STATES[state]


def interrupted(connection: sqlite3.Connection) -> Iterator[tuple[int, int]]:
    """Unfinished jobs and iterations of which an attempt had started, and that are queued again."""
    for (number,) in connection.execute(f"SELECT place {OF_UNFINISHED} AND runs.state = {QUEUED} AND runs.started > 0"):
        yield seq_and_position(number)


def past_attempts_of(connection: sqlite3.Connection, seq: int, position: int) -> list[PastAttemptRecord]:
    """The earlier attempts of a job or iteration, in order."""
    return [
        to_past_attempt(row)
        for row in past_rows(connection, f"WHERE place = {place(seq, position)} ORDER BY place, attempt")
    ]


def past_attempts_among(connection: sqlite3.Connection, seq: int, positions: range) -> Iterator[PastAttemptRecord]:
    """The earlier attempts of consecutive positions, in order."""
    first, end = place(seq, positions.start), place(seq, positions.stop)
    return map(
        to_past_attempt,
        past_rows(connection, f"WHERE place >= {first} AND place < {end} ORDER BY place, attempt"),
    )


def attempts_so_far(connection: sqlite3.Connection, seqs: Collection[int]) -> dict[int, dict[int, tuple[int, int]]]:
    """By job number and position without success, the last attempt number, and the number of attempts that were
    started; jobs without attempts are left out. Only for managers: registries of earlier versions lack a table."""
    wanted = (json.dumps(list(seqs)),)
    earlier = dict(
        connection.execute(
            f"SELECT place, count(*) FROM json_each(?) CROSS JOIN past_attempts ON {_OF_JOB} GROUP BY place", wanted
        )
    )
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for number, attempt, state, started in connection.execute(
        f"SELECT place, attempt, state, granted IS NOT NULL FROM json_each(?) CROSS JOIN runs ON {_OF_JOB}"
        f" AND attempt > 0 AND state <> {int(State.SUCCEED)}",
        wanted,
    ):
        seq, position = seq_and_position(number)
        found.setdefault(seq, {})[position] = attempt, earlier.get(number, 0) + (state >= FINAL and started)
    return found


def past_rows(connection: sqlite3.Connection, condition: str, columns: str = "") -> Iterator[tuple[Any, ...]]:
    """Rows of earlier attempts; none in registries of earlier versions, which lack the table."""
    if has_past_table(connection):
        yield from connection.execute(f"SELECT {columns or PAST_COLUMNS} FROM past_attempts {condition}")


def has_past_table(connection: sqlite3.Connection) -> bool:
    """Whether the registry has the table of earlier attempts; earlier versions lack it."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'past_attempts'").fetchone() is not None


def holds(connection: sqlite3.Connection) -> Iterator[tuple[int, int, float]]:
    """Job number, position and time of the holds of jobs that are not final, whole jobs first; none in registries of
    earlier versions, which lack the table."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'holds'").fetchone():
        for number, since in connection.execute(
            f"SELECT place, since FROM holds JOIN jobs ON seq = place >> 32 AND state < {FINAL}"
            " WHERE (place & 4294967295) <= iterations ORDER BY place"
        ):
            yield *seq_and_position(number), since


def held_since(connection: sqlite3.Connection, seqs: Collection[int]) -> dict[int, float]:
    """By job number, since when a job is held as a whole, or was held until it was omitted. Only for managers:
    registries of earlier versions lack the table."""
    wanted = json.dumps([place(seq, -1) for seq in seqs])
    rows = connection.execute("SELECT place, since FROM json_each(?) CROSS JOIN holds ON place = value", (wanted,))
    return {number >> 32: since for number, since in rows}


def to_past_attempt(row: tuple[Any, ...]) -> PastAttemptRecord:
    number, attempt, cause, counted, next_at, scheduled, started, ended, pid, exit_code, granted, *more = row
    message, rerun_at, *usage = more
    return PastAttemptRecord(
        *seq_and_position(number),
        attempt,
        cause_of_end(cause, exit_code, started, message),
        bool(counted),
        next_at or None,
        scheduled or None,
        started or None,
        ended or None,
        pid,
        exit_code,
        None if granted is None else decode_grant(granted),
        message_of_end(message),
        to_usage(usage),
        rerun_at or None,
    )


def command_of(connection: sqlite3.Connection, seq: int, position: int) -> str | None:
    row = connection.execute("SELECT command FROM commands WHERE place = ?", (place(seq, position),)).fetchone()
    return None if row is None else row[0]


def attempt_records(connection: sqlite3.Connection) -> Iterator[AttemptRecord]:
    return map(
        to_attempt, connection.execute(f"SELECT {ATTEMPT_COLUMNS} FROM runs WHERE state > {QUEUED} ORDER BY place")
    )


def last_end(connection: sqlite3.Connection) -> int:
    """The number of the last end of a job; 0 when no job has ended."""
    (number,) = connection.execute("SELECT max(last) FROM ends").fetchone()
    return number or 0


def ends_between(connection: sqlite3.Connection, after: int, last: int, limit: int) -> list[JobEnded]:
    """At most `limit` ends with numbers above `after`, up to `last`."""
    until = min(last, after + limit)
    found: list[JobEnded] = []
    for last_of_batch, batch in connection.execute(
        "SELECT last, batch FROM ends WHERE last > ? ORDER BY last", (after,)
    ):
        ends = decode_ends(batch)
        numbered = enumerate(ends, last_of_batch - len(ends) + 1)
        found += [
            JobEnded(number, name, STATES[state]) for number, (name, state) in numbered if after < number <= until
        ]
        if last_of_batch >= until:
            break
    return found


def has_jobs(connection: sqlite3.Connection) -> bool:
    """Whether the run has jobs, or had jobs that were removed."""
    return max_seq(connection) > 0


def names_beginning_with(connection: sqlite3.Connection, begin: str, final: bool | None, most: int) -> Iterator[str]:
    """Names of jobs in the order of submission; `final` selects jobs that have ended (True) or have not (False)."""
    condition = "" if final is None else f" AND state {'>=' if final else '<'} {FINAL}"
    query = f"SELECT name FROM jobs WHERE substr(name, 1, ?) = ?{condition} ORDER BY seq LIMIT ?"
    yield from (name for (name,) in connection.execute(query, (len(begin), begin, most)))


def unfinished(connection: sqlite3.Connection) -> int:
    """Number of jobs that have not ended."""
    (count,) = connection.execute(f"SELECT count(*) FROM jobs WHERE state < {FINAL}").fetchone()
    return int(count)


def starts_and_ends(connection: sqlite3.Connection) -> tuple[int, int]:
    """Number of attempts and number of final jobs: at least one grows when the run makes progress."""
    (starts,) = connection.execute("SELECT coalesce(sum(attempt), 0) FROM runs").fetchone()
    (ends,) = connection.execute(f"SELECT count(*) FROM jobs WHERE state >= {FINAL}").fetchone()
    return int(starts), int(ends)


def max_seq(connection: sqlite3.Connection) -> int:
    (highest,) = connection.execute("SELECT max(seq) FROM submitted_jobs").fetchone()
    return max(highest or 0, HIGHEST_REMOVED_SEQ.read(connection))


def to_rest(number: int) -> State | None:
    return STATES[number] if number else None


def to_job(row: tuple[Any, ...]) -> JobRecord:
    seq, name, submitted, iterations, state, started, ended, message, rest, rest_at = row
    return JobRecord(
        seq,
        name,
        submitted,
        iterations,
        STATES[state],
        started or None,
        ended or None,
        message,
        to_rest(rest),
        rest_at or None,
    )


def to_attempt(row: tuple[Any, ...]) -> AttemptRecord:
    number, attempt, state, scheduled, started, ended, pid, exit_code, granted, killed, message, *usage = row
    # Without calls of seq_and_position: a report decodes every attempt of a run.
    return AttemptRecord(
        number >> 32,
        (number & 0xFFFFFFFF) - 1,
        attempt,
        STATES[state],
        scheduled or None,
        started or None,
        ended or None,
        pid,
        exit_code if state >= FINAL else None,
        None if granted is None else decode_grant(granted),
        killed == KILLED,
        message,
        killed == STOPPED,
        killed == TOGETHER,
        to_usage(usage),
    )


def to_usage(counts: list[int]) -> Usage | None:
    """The resources that an attempt used; None if they were not measured: every process uses some memory."""
    return Usage._make(counts) if counts[2] else None
