"""Finds jobs of a registry: searched, filtered by state, sorted, page by page.

A registry has an index only of job numbers, and a scan of a million rows takes a tenth of a second. So each sort order
reads the table with its values, and joins both tables only where needed.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.watch.source import JobQuery, Sort

MOST_LINES = 1000
"""Most lines of a page."""
DEEP = 5000
"""Number of jobs before a page from which on the whole order is kept for the next pages."""
MOST_ORDERS = 4
"""Orders that are kept; each has 8 bytes for each job."""

_QUEUED = int(State.QUEUED)
_IS_JOB = f"(place & 4294967295) = 0 AND runs.state > {_QUEUED}"
"""Rows of jobs without iterations."""
_HAS_ROW = f"EXISTS (SELECT 1 FROM runs WHERE place = seq << 32 AND state > {_QUEUED})"
_STATE = f"CASE WHEN iterations = 0 AND runs.state > {_QUEUED} THEN runs.state ELSE job.state END"
_JOINED = "submitted_jobs AS job LEFT JOIN runs ON place = seq << 32"

VALUES: dict[Sort, str] = {
    "started": "runs.started",
    "ended": "runs.ended",
    "duration": "CASE WHEN runs.ended > 0 THEN runs.ended - runs.started WHEN runs.started > 0 THEN :now - runs.started"
    " ELSE 0 END",
    "memory": "runs.memory",
}
"""The sort keys of attempts; 0 where the value is not known."""
_VALUES_OF_ITERATED: dict[Sort, str] = {
    "started": "started",
    "ended": "ended",
    "duration": "CASE WHEN ended > 0 THEN ended - started WHEN started > 0 THEN :now - started ELSE 0 END",
    "memory": "0",
}


class Found(NamedTuple):
    """One page of a list."""

    total: int
    keys: Sequence[int]
    """Numbers of jobs, or positions of iterations."""


class JobFinder:
    """Finds jobs. It keeps totals and orders as long as the registry does not change."""

    def __init__(self) -> None:
        self._version = -1
        self._totals: dict[Any, int] = {}
        self._orders: OrderedDict[Any, array[int]] = OrderedDict()

    def find(self, connection: sqlite3.Connection, version: int, query: JobQuery, now: float) -> Found:
        """A page of jobs. `version` changes with the registry."""
        if version != self._version:
            self._version = version
            self._totals, self._orders = {}, OrderedDict()
        totals, orders = self._totals, self._orders  # of this version, whatever other threads do
        selected = _Selection(query, now)
        first, limit = page_of(query)
        key = query.search, query.states, query.sort, query.descending
        total = totals.get(key[:2])
        if total is None:
            total = totals[key[:2]] = selected.count(connection)
        if first >= total:
            return Found(total, [])
        if query.sort == "submitted" and not query.states and not query.search and first > total // 2:
            # From the other end: a page has as many jobs before it as it is skipped by.
            keys = selected.from_end(connection, max(total - first - limit, 0), min(limit, max(total - first, 0)))
            return Found(total, keys)
        order = orders.get(key)
        if order is None and first >= DEEP and query.sort != "submitted":
            order = orders[key] = array("q", selected.keys(connection, 0, -1))
            while len(orders) > MOST_ORDERS:
                orders.popitem(last=False)
        if order is not None:
            return Found(total, order[first : first + limit])
        return Found(total, selected.keys(connection, first, limit))


def page_of(query: JobQuery) -> tuple[int, int]:
    """Number of lines before a page, and on it."""
    return max(query.first, 0), max(min(query.limit, MOST_LINES), 0)


class _Selection:
    """The SQL of a query."""

    def __init__(self, query: JobQuery, now: float) -> None:
        self._query = query
        self._direction = "DESC" if query.descending else "ASC"
        self._values: dict[str, Any] = {"now": now}
        numbers = sorted({int(State[name]) for name in query.states if name in State.__members__})
        self._states = ", ".join(map(str, numbers))
        self._wants_queued = _QUEUED in numbers
        self._only_queued = numbers == [_QUEUED] and not query.search
        if query.search:
            self._values["search"] = like_pattern(query.search)

    def count(self, connection: sqlite3.Connection) -> int:
        if not self._query.states:
            return self._number(connection, f"SELECT count(*) FROM submitted_jobs{self._where_name()}")
        if self._only_queued:
            # Attempts are written when they are scheduled, and the states of their jobs stay QUEUED.
            (others,) = connection.execute(f"SELECT count(*) FROM runs WHERE {_IS_JOB}").fetchone()
            return self._number(connection, f"SELECT count(*) FROM submitted_jobs WHERE state = {_QUEUED}") - int(
                others
            )
        if self._query.search or self._wants_queued:
            conditions = " AND ".join(self._conditions())
            return self._number(connection, f"SELECT count(*) FROM {_JOINED} WHERE {conditions}")
        return self._number(connection, f"SELECT count(*) FROM ({self._in_states()})")

    def keys(self, connection: sqlite3.Connection, first: int, limit: int) -> list[int]:
        """Numbers of the jobs on a page; a limit of -1 is none."""
        if self._query.sort in VALUES and not (self._query.search or self._query.states):
            return self._by_value(connection, self._query.sort, first, limit)
        return self._rows(connection, self._sql(), first, limit)

    def _rows(self, connection: sqlite3.Connection, sql: str, first: int, limit: int) -> list[int]:
        values = {**self._values, "first": first, "limit": limit}
        return [seq for (seq,) in connection.execute(f"{sql} LIMIT :limit OFFSET :first", values)]

    def from_end(self, connection: sqlite3.Connection, first: int, limit: int) -> list[int]:
        """The same in the order of submission, counted from the end."""
        back = "ASC" if self._query.descending else "DESC"
        rows = connection.execute(
            f"SELECT seq FROM submitted_jobs ORDER BY seq {back} LIMIT ? OFFSET ?", (limit, first)
        )
        return [seq for (seq,) in rows][::-1]

    def _sql(self) -> str:
        sort = self._query.sort
        if sort == "submitted" and self._only_queued:
            queued = f"state = {_QUEUED} AND (iterations > 0 OR NOT {_HAS_ROW})"
            return f"SELECT seq FROM submitted_jobs WHERE {queued} ORDER BY seq {self._direction}"
        if sort == "submitted" and self._query.states and not (self._query.search or self._wants_queued):
            return f"{self._in_states()} ORDER BY seq {self._direction}"
        if sort in ("submitted", "name") and not self._query.states:
            column = "seq" if sort == "submitted" else "name"
            return f"SELECT seq FROM submitted_jobs{self._where_name()} ORDER BY {column} {self._direction}"
        conditions = self._conditions()
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT seq FROM {_JOINED}{where} ORDER BY {self._order(sort)}"

    def _order(self, sort: Sort) -> str:
        if sort in VALUES:
            # In a join, with the times of iterated jobs as well. Jobs without a value are the last ones.
            value = f"CASE WHEN iterations > 0 THEN {_VALUES_OF_ITERATED[sort]} ELSE coalesce({VALUES[sort]}, 0) END"
            value = value.replace(" started", " job.started").replace(" ended", " job.ended")
            return f"({value}) <= 0, ({value}) {self._direction}, seq"
        return f"{ {'submitted': 'seq', 'name': 'name'}.get(sort, _STATE) } {self._direction}, seq"

    def _by_value(self, connection: sqlite3.Connection, sort: Sort, first: int, limit: int) -> list[int]:
        """All jobs by a value of their attempts: from the table of attempts alone, then jobs without an attempt."""
        with_row = (
            f"SELECT place >> 32 AS seq, {VALUES[sort]} AS value FROM runs WHERE {_IS_JOB}"
            f" UNION ALL SELECT seq, {_VALUES_OF_ITERATED[sort]} FROM submitted_jobs WHERE iterations > 0"
        )
        ordered = f"SELECT seq FROM ({with_row}) ORDER BY value <= 0, value {self._direction}, seq"
        found = self._rows(connection, ordered, first, limit)
        if limit < 0 or len(found) < limit:
            before = self._number(connection, f"SELECT count(*) FROM ({with_row})")
            others = f"SELECT seq FROM submitted_jobs WHERE iterations = 0 AND NOT {_HAS_ROW} ORDER BY seq"
            found += self._rows(connection, others, max(first - before, 0), limit if limit < 0 else limit - len(found))
        return found

    def _in_states(self) -> str:
        """Jobs in some states, without QUEUED. A final job without an attempt has its state in its own row."""
        return (
            f"SELECT place >> 32 AS seq FROM runs WHERE {_IS_JOB} AND runs.state IN ({self._states})"
            f" UNION ALL SELECT seq FROM submitted_jobs AS job WHERE job.state IN ({self._states}) AND (iterations > 0"
            f" OR NOT {_HAS_ROW})"
        )

    def _conditions(self) -> list[str]:
        conditions = ["name LIKE :search ESCAPE '\\'"] if self._query.search else []
        return [*conditions, f"{_STATE} IN ({self._states})"] if self._query.states else conditions

    def _where_name(self) -> str:
        return " WHERE name LIKE :search ESCAPE '\\'" if self._query.search else ""

    def _number(self, connection: sqlite3.Connection, sql: str) -> int:
        (number,) = connection.execute(sql, self._values).fetchone()
        return int(number)


def like_pattern(search: str) -> str:
    """The pattern of LIKE for a part of a name, or for a pattern with `*` and `?`."""
    escaped = search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    if "*" in search or "?" in search:
        return escaped.replace("*", "%").replace("?", "_")
    return f"%{escaped}%"
