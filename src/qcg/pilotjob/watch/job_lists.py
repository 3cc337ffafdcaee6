"""Lists of jobs and of iterations from a registry: searched, filtered by state, sorted, page by page."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.iteration import Indices
from qcg.pilotjob.host.records import Usage
from qcg.pilotjob.journal import aggregates, queries
from qcg.pilotjob.journal.descriptions import decode_description, iteration_of
from qcg.pilotjob.journal.records import AttemptRecord, JobRecord
from qcg.pilotjob.journal.schema import place
from qcg.pilotjob.report.record import cpu_efficiency
from qcg.pilotjob.watch.job_finder import VALUES, Found, JobFinder, page_of
from qcg.pilotjob.watch.source import JobLine, JobPage, JobQuery


def list_jobs(connection: sqlite3.Connection, version: int, finder: JobFinder, query: JobQuery, now: float) -> JobPage:
    """A page of jobs, or of the iterations of one job. `version` changes with the registry."""
    if query.job:
        return _list_iterations(connection, query, now)
    found = finder.find(connection, version, query, now)
    lines = [line for seq in found.keys if (line := job_line(connection, seq)) is not None]
    return JobPage(found.total, tuple(lines))


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
    if not state.is_final and (failed := counts.get("FAILED")):
        message = f"{failed} of {record.iterations} iterations have failed so far"
    elif state is State.FAILED and counts.get("FAILED", 0) < record.iterations:
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
    """The line of a job or iteration. `past`: the number of earlier attempts. Retracted attempts have numbers, too."""
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
    found = _find_iterations(connection, query, record, indices, now)
    return JobPage(
        found.total, tuple([iteration_line(connection, record, indices, position) for position in found.keys])
    )


def _find_iterations(
    connection: sqlite3.Connection, query: JobQuery, record: JobRecord, indices: Indices, now: float
) -> Found:
    first, limit = page_of(query)
    in_order = query.sort in ("submitted", "name")
    states = {state for state in State if not query.states or state.name in query.states}
    if not query.search:
        if in_order and len(states) == len(State):
            positions = range(len(indices))[:: -1 if query.descending else 1]
            return Found(len(positions), positions[first : first + limit])
        rows = _Rows(connection, record, states, query, now)
        if _state_without_row(record) not in states or rows.count_all() == record.iterations:
            return Found(rows.count(), rows.page(first, limit))
    rows = _Rows(connection, record, states, query, now)
    chosen = rows.page(0, -1)
    if _state_without_row(record) in states:
        # Sort keys of attempts put iterations without an attempt at the end.
        chosen += rows.without_row()
    if in_order:
        chosen.sort(reverse=query.descending)
    if query.search:
        matches = _matcher(query.search)
        chosen = [position for position in chosen if matches(f"{record.name}:{indices[position]}")]
    return Found(len(chosen), chosen[first : first + limit])


class _Rows:
    """The rows of iterations of one job that have started or ended."""

    def __init__(
        self, connection: sqlite3.Connection, record: JobRecord, states: set[State], query: JobQuery, now: float
    ) -> None:
        self._connection = connection
        self._iterations = record.iterations
        start = place(record.seq, 0)
        self._values = {"start": start, "end": start + record.iterations, "now": now}
        self._all = f"FROM runs WHERE state > {int(State.QUEUED)} AND place >= :start AND place < :end"
        self._chosen = f"{self._all} AND state IN ({', '.join([str(int(state)) for state in states])})"
        direction = "DESC" if query.descending else "ASC"
        if query.sort in VALUES:
            self._order = f"({VALUES[query.sort]}) <= 0, ({VALUES[query.sort]}) {direction}, place"
        else:
            self._order = f"state {direction}, place" if query.sort == "state" else f"place {direction}"

    def count(self) -> int:
        (number,) = self._connection.execute(f"SELECT count(*) {self._chosen}", self._values).fetchone()
        return int(number)

    def count_all(self) -> int:
        """Rows in any state."""
        (number,) = self._connection.execute(f"SELECT count(*) {self._all}", self._values).fetchone()
        return int(number)

    def page(self, first: int, limit: int) -> list[int]:
        """Positions in the order of the query; a limit of -1 is none."""
        sql = f"SELECT place - :start {self._chosen} ORDER BY {self._order} LIMIT :limit OFFSET :first"
        rows = self._connection.execute(sql, {**self._values, "first": first, "limit": limit})
        return [position for (position,) in rows]

    def without_row(self) -> list[int]:
        """Positions of iterations without a row."""
        known = bytearray(self._iterations)
        for (position,) in self._connection.execute(f"SELECT place - :start {self._all}", self._values):
            known[position] = 1
        return [position for position, has_row in enumerate(known) if not has_row]


def _matcher(search: str) -> Callable[[str], object]:
    if "*" in search or "?" in search:
        pattern = "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in search)
        return re.compile(pattern, re.IGNORECASE | re.DOTALL).fullmatch
    return re.compile(re.escape(search), re.IGNORECASE).search
