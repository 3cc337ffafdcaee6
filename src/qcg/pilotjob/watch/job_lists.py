"""Lists of jobs and of iterations from a registry: searched, filtered by state, sorted, page by page."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

from qcg.pilotjob.core.job_states import STATES, State
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.iteration import Indices
from qcg.pilotjob.host.records import Usage
from qcg.pilotjob.journal import aggregates, queries
from qcg.pilotjob.journal.descriptions import decode_description, iteration_of
from qcg.pilotjob.journal.records import AttemptRecord, JobRecord
from qcg.pilotjob.journal.schema import place
from qcg.pilotjob.report.record import cpu_efficiency
from qcg.pilotjob.watch.source import JobLine, JobPage, JobQuery, Sort

MOST_LINES = 1000
"""Lines of a page, whatever is asked for."""

_STATE = f"CASE WHEN iterations = 0 AND r.state > {int(State.QUEUED)} THEN r.state ELSE j.state END"
_JOBS = "submitted_jobs AS j LEFT JOIN runs AS r ON r.place = j.seq << 32"

# Sorts by what attempts have leave out the LEFT JOIN: a scan of attempts takes a third of its time.
_OF_ATTEMPTS: dict[Sort, str] = {
    "started": "r.started",
    "ended": "r.ended",
    "duration": "CASE WHEN r.ended > 0 THEN r.ended - r.started WHEN r.started > 0 THEN :now - r.started ELSE -1 END",
    "memory": "r.memory",
}
_OF_JOBS: dict[Sort, str] = {
    "started": "max(coalesce(r.started, 0), j.started)",
    "ended": "max(coalesce(r.ended, 0), j.ended)",
    "duration": "CASE WHEN max(coalesce(r.ended, 0), j.ended) > 0"
    " THEN max(coalesce(r.ended, 0), j.ended) - max(coalesce(r.started, 0), j.started)"
    " WHEN max(coalesce(r.started, 0), j.started) > 0 THEN :now - max(coalesce(r.started, 0), j.started) ELSE -1 END",
    "memory": "coalesce(r.memory, 0)",
    "name": "name",
    "state": _STATE,
    "submitted": "seq",
}


class _Part(NamedTuple):
    """Some rows of a list, and how many there are."""

    total: int
    keys: list[int]


def list_jobs(connection: sqlite3.Connection, query: JobQuery, now: float) -> JobPage:
    """A page of jobs, or of the iterations of one job."""
    if query.job:
        return _list_iterations(connection, query, now)
    found = _find_jobs(connection, query, now)
    lines = [line for seq in found.keys if (line := job_line(connection, seq)) is not None]
    return JobPage(found.total, tuple(lines))


def _find_jobs(connection: sqlite3.Connection, query: JobQuery, now: float) -> _Part:
    conditions, values = _conditions(query)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    tables = _JOBS if query.states else "submitted_jobs AS j"
    (total,) = connection.execute(f"SELECT count(*) FROM {tables} {where}", values).fetchone()
    values |= {"now": now, "first": max(query.first, 0), "limit": _limit(query)}
    direction = "DESC" if query.descending else "ASC"
    order = f"{_OF_JOBS[query.sort]} {direction}" + ("" if query.sort == "submitted" else ", seq")
    if query.sort not in ("submitted", "name"):
        tables = _JOBS
    rows = connection.execute(
        f"SELECT seq FROM {tables} {where} ORDER BY {order} LIMIT :limit OFFSET :first",
        values,
    )
    return _Part(total, [seq for (seq,) in rows])


def _conditions(query: JobQuery) -> tuple[list[str], dict[str, Any]]:
    conditions: list[str] = []
    values: dict[str, Any] = {}
    if query.search:
        conditions.append("name LIKE :search ESCAPE '\\'")
        values["search"] = _like(query.search)
    if query.states:
        numbers = [str(int(State[name])) for name in query.states if name in State.__members__]
        conditions.append(f"{_STATE} IN ({', '.join(numbers)})")
    return conditions, values


def _like(search: str) -> str:
    """The pattern of LIKE for a part of a name, or for a pattern with `*` and `?`."""
    escaped = search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    if "*" in search or "?" in search:
        return escaped.replace("*", "%").replace("?", "_")
    return f"%{escaped}%"


def _limit(query: JobQuery) -> int:
    return max(min(query.limit, MOST_LINES), 0)


# -- lines ----------------------------------------------------------------------------------------------------------


def job_line(connection: sqlite3.Connection, seq: int) -> JobLine | None:
    """The line of one job."""
    record = queries.job_record(connection, seq)
    if record is None:
        return None
    if record.iterations:
        return _iterated_line(connection, record)
    attempt = next(queries.attempts_of(connection, seq, [-1]), None)
    state = record.state if attempt is None else attempt.state
    past = _past_attempts(connection, seq, -1)
    return _line(record.name, record.submitted, state, record.message, record.ended, attempt, past)


def _past_attempts(connection: sqlite3.Connection, seq: int, position: int) -> int:
    (count,) = next(queries.past_rows(connection, f"WHERE place = {place(seq, position)}", "count(*)"), (0,))
    return int(count)


def _iterated_line(connection: sqlite3.Connection, record: JobRecord) -> JobLine:
    counts = iteration_counts(connection, record)
    state = record.state
    if not state.is_final and not (counts.get("SCHEDULED") or counts.get("EXECUTING")):
        state = State.QUEUED
    message = record.message
    if state is State.FAILED and counts.get("FAILED", 0) < record.iterations:
        message = f"{counts.get('FAILED', 0)} of {record.iterations} iterations failed"
    return JobLine(
        record.name,
        state.name,
        record.submitted,
        record.started,
        record.ended,
        message=message,
        iterations=counts,
    )


def iteration_counts(connection: sqlite3.Connection, record: JobRecord) -> dict[str, int]:
    """Numbers of iterations of a job by state."""
    counted = aggregates.iteration_states(connection, record.seq)
    without_row = record.iterations - sum(counted.values())
    if without_row > 0:
        counted[_state_without_row(record)] += without_row
    return {state.name: counted[state] for state in State if counted[state]}


def _state_without_row(record: JobRecord) -> State:
    """The state of the iterations of a job that have no row of their own."""
    return record.rest or (record.state if record.state.is_final else State.QUEUED)


def _line(
    name: str,
    submitted: float,
    state: State,
    message: str,
    ended: float | None,
    attempt: AttemptRecord | None,
    past: int,
) -> JobLine:
    """`past`: the number of earlier attempts. Attempts that were taken back before they began have numbers, too."""
    if attempt is None:
        return JobLine(name, state.name, submitted, ended=ended, attempts=past, message=message)
    seconds = attempt.ended - attempt.started if attempt.started and attempt.ended else None
    return JobLine(
        name,
        state.name,
        submitted,
        attempt.started,
        attempt.ended,
        past + (attempt.grant is not None),
        attempt.exit_code,
        attempt.message or message,
        shown_grant(attempt.grant),
        cpu_efficiency(attempt.usage, attempt.grant, seconds),
        peak_memory(attempt.usage),
    )


def shown_grant(grant: Grant | None) -> str:
    return "" if grant is None else str(grant)


def peak_memory(usage: Usage | None) -> int:
    """Bytes; 0 where it is not known."""
    return 0 if usage is None else usage.memory << 10


# -- iterations -----------------------------------------------------------------------------------------------------


def find_job(connection: sqlite3.Connection, name: str) -> JobRecord | None:
    row = connection.execute("SELECT seq FROM submitted_jobs WHERE name = ? LIMIT 1", (name,)).fetchone()
    return None if row is None else queries.job_record(connection, row[0])


def indices_of(connection: sqlite3.Connection, record: JobRecord) -> Indices:
    """The indices of the iterations of a job. Raises DamagedDescription."""
    spec = queries.spec_of(connection, record.seq)
    assert spec is not None
    description = decode_description(spec, record.seq, record.name)
    return iteration_of(description, record.seq, record.name, record.iterations).indices()


def iteration_line(connection: sqlite3.Connection, record: JobRecord, indices: Indices, position: int) -> JobLine:
    attempt = next(queries.attempts_of(connection, record.seq, [position]), None)
    name = f"{record.name}:{indices[position]}"
    past = _past_attempts(connection, record.seq, position)
    if attempt is not None:
        return _line(name, record.submitted, attempt.state, "", None, attempt, past)
    state = _state_without_row(record)
    ended = (record.rest_at or record.ended) if state.is_final else None
    return _line(name, record.submitted, state, record.message if state.is_final else "", ended, None, past)


def _list_iterations(connection: sqlite3.Connection, query: JobQuery, now: float) -> JobPage:
    record = find_job(connection, query.job)
    if record is None or not record.iterations:
        return JobPage(0, ())
    indices = indices_of(connection, record)
    chosen = _find_iterations(connection, query, record, indices, now)
    return JobPage(
        chosen.total, tuple([iteration_line(connection, record, indices, position) for position in chosen.keys])
    )


def _find_iterations(
    connection: sqlite3.Connection, query: JobQuery, record: JobRecord, indices: Indices, now: float
) -> _Part:
    first, limit = max(query.first, 0), _limit(query)
    positions: range | list[int] = range(len(indices))
    if not (query.states or query.search) and query.sort in ("submitted", "name"):
        ordered = positions[::-1] if query.descending else positions
        return _Part(len(ordered), list(ordered[first : first + limit]))
    with_rows = _positions_with_rows(connection, query, record, now)
    states = {state for state in State if not query.states or state.name in query.states}
    chosen = [position for position, state in with_rows if state in states]
    if _state_without_row(record) in states and len(with_rows) < len(indices):
        known = bytearray(len(indices))
        for position, _ in with_rows:
            known[position] = 1
        # Sorts by what attempts have put iterations without one at the end.
        chosen += [position for position in positions if not known[position]]
    if query.sort in ("submitted", "name"):
        chosen.sort(reverse=query.descending)
    if query.search:
        matches = _matcher(query.search)
        chosen = [position for position in chosen if matches(f"{record.name}:{indices[position]}")]
    return _Part(len(chosen), chosen[first : first + limit])


def _positions_with_rows(
    connection: sqlite3.Connection, query: JobQuery, record: JobRecord, now: float
) -> list[tuple[int, State]]:
    """Iterations that have started or ended, in the order of the query."""
    sort = {**_OF_ATTEMPTS, "state": "r.state"}.get(query.sort)
    order = "place" if sort is None else f"{sort} {'DESC' if query.descending else 'ASC'}, place"
    start = place(record.seq, 0)
    rows = connection.execute(
        f"SELECT place - :start, state FROM runs AS r WHERE state > {int(State.QUEUED)} AND place >= :start"
        f" AND place < :end ORDER BY {order}",
        {"start": start, "end": place(record.seq + 1, -1), "now": now},
    )
    return [(position, STATES[state]) for position, state in rows if 0 <= position < record.iterations]


def _matcher(search: str) -> Any:
    from fnmatch import translate
    from re import IGNORECASE, compile, escape

    pattern = translate(search.replace("[", "[[]")) if "*" in search or "?" in search else f".*{escape(search)}"
    return compile(pattern, IGNORECASE).match
