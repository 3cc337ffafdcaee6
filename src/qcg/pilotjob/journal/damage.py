"""Damaged registries: detect cells that no manager has written, and salvage the readable rest.

SQLite detects a damaged page, but not a cell whose type or value makes no sense. The check takes few SQL statements,
so that it is cheap for a sound registry. Only a damaged registry is examined row by row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import msgspec

from qcg.pilotjob.core.job_states import STATES
from qcg.pilotjob.journal.encoding import decode_grant
from qcg.pilotjob.journal.metadata import KEYS
from qcg.pilotjob.journal.schema import TABLES, USAGE, seq_and_position

LATEST = 253402300799
"""The last second of the year 9999: beyond it there are no dates."""
MOST = 2**31 - 1
MOST_NAMED = 3
"""The most damaged cells that a message names."""


class Column(NamedTuple):
    name: str
    valid: str
    """SQL condition for the cell `{}`: a manager can have written it."""
    default: Any = None
    """Value that replaces a damaged cell."""
    required: bool = False
    """A row without this cell is useless."""


def _time(name: str) -> Column:
    return Column(name, f"(typeof({{0}}) IN ('real', 'integer') AND {{0}} BETWEEN 0 AND {LATEST})", 0.0)


def _integer(name: str, most: int, default: int = 0, *, required: bool = False) -> Column:
    return Column(name, f"(typeof({{0}}) = 'integer' AND {{0}} BETWEEN 0 AND {most})", default, required)


def _text(name: str, *, required: bool = False) -> Column:
    empty = " AND {0} <> ''" if required else ""
    return Column(name, f"(typeof({{0}}) = 'text'{empty})", "", required)


_STATE = len(STATES) - 1
_MOST_USED = 2**59
"""No attempt uses more of anything; seven times as much is still an integer of SQLite."""
_USAGE = tuple(_integer(name, _MOST_USED) for name in USAGE)
_USED = ", ".join(USAGE)
_USAGE_SOUND = f"min({_USED}) >= 0 AND max({_USED}) <= {_MOST_USED} AND typeof({' + '.join(USAGE)}) = 'integer'"
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "submitted_jobs": (
        _integer("seq", MOST, required=True),
        _text("name", required=True),
        _time("submitted"),
        _integer("iterations", MOST, required=True),
        _integer("state", _STATE, required=True),
        _time("started"),
        _time("ended"),
        _text("message"),
        _integer("rest", _STATE),
        _time("rest_at"),
        Column("spec", "(typeof({0}) = 'blob')", None, required=True),
    ),
    "runs": (
        _integer("attempt", MOST, 1, required=True),
        _integer("state", _STATE, required=True),
        _time("scheduled"),
        _time("started"),
        _time("ended"),
        _integer("pid", MOST),
        Column("exit_code", f"({{0}} IS NULL OR (typeof({{0}}) = 'integer' AND abs({{0}}) <= {MOST}))"),
        Column("granted", "({0} IS NULL OR typeof({0}) = 'blob')"),
        _integer("killed", 7),
        _text("message"),
        *_USAGE,
    ),
    "past_attempts": (
        _integer("place", 2**62, required=True),
        _integer("attempt", MOST, 1, required=True),
        _text("cause", required=True),
        _integer("counted", 1),
        _time("next_at"),
        _time("scheduled"),
        _time("started"),
        _time("ended"),
        _integer("pid", MOST),
        Column("exit_code", f"({{0}} IS NULL OR (typeof({{0}}) = 'integer' AND abs({{0}}) <= {MOST}))"),
        Column("granted", "({0} IS NULL OR typeof({0}) = 'blob')"),
        _text("message"),
        *_USAGE,
        _time("rerun_at"),
    ),
    "commands": (_text("command", required=True),),
    "holds": (_time("since"),),
    "ends": (Column("batch", "(typeof({0}) = 'blob')", None, required=True),),
    "agents": (_text("name", required=True), _integer("acked", 2**62, required=True)),
    "meta": (Column("value", "{0}", None, required=True),),
}
_KEYS = {
    "submitted_jobs": "seq",
    "runs": "place",
    "past_attempts": "number",
    "commands": "place",
    "holds": "place",
    "ends": "last",
    "agents": "name",
    "meta": "key",
}
_META_VALID = f"CASE key {' '.join(f'WHEN {key.name!r} THEN {key.valid}' for key in KEYS)} ELSE 1 END"
SMALL = ("meta", "agents")
"""Tables that are checked before any query."""
READ_BY_COMMANDS = ("submitted_jobs", "runs", "past_attempts", "commands", "holds", *SMALL)
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE name = ?"

# The conditions of all columns in few steps: SQLite sorts text and blobs after all numbers, a sum of integers is an
# integer, and no comparison with NULL is true.
_SOUND = {
    "submitted_jobs": f"""
        seq BETWEEN 0 AND {MOST} AND min(submitted, started, ended, rest_at, iterations, state, rest) >= 0
        AND max(submitted, started, ended, rest_at) <= {LATEST} AND max(state, rest) <= {_STATE}
        AND iterations <= {MOST} AND typeof(iterations + state + rest) = 'integer'
        AND typeof(name) = 'text' AND name <> '' AND typeof(message) = 'text' AND typeof(spec) = 'blob'""",
    "runs": f"""
        min(scheduled, started, ended, attempt, state, pid, killed) >= 0
        AND max(scheduled, started, ended) <= {LATEST} AND max(attempt, pid) <= {MOST} AND state <= {_STATE}
        AND killed <= 7 AND typeof(attempt + state + pid + killed + coalesce(exit_code, 0)) = 'integer'
        AND (exit_code IS NULL OR abs(exit_code) <= {MOST}) AND typeof(message) = 'text' AND {_USAGE_SOUND}""",
    "past_attempts": f"""
        min(place, scheduled, started, ended, next_at, rerun_at, attempt, pid, counted) >= 0
        AND max(scheduled, started, ended, next_at, rerun_at) <= {LATEST} AND max(attempt, pid) <= {MOST}
        AND typeof(place + attempt + pid + counted + coalesce(exit_code, 0)) = 'integer' AND place <= 1 << 62
        AND counted <= 1 AND (exit_code IS NULL OR abs(exit_code) <= {MOST}) AND typeof(message) = 'text'
        AND typeof(cause) = 'text' AND cause <> '' AND {_USAGE_SOUND}""",
    "commands": "typeof(command) = 'text' AND command <> ''",
    "holds": f"since BETWEEN 0 AND {LATEST}",
    "ends": "typeof(batch) = 'blob'",
    "agents": "typeof(name) = 'text' AND name <> '' AND typeof(acked) = 'integer' AND acked BETWEEN 0 AND 1 << 62",
    "meta": _META_VALID,
}

_MISPLACED = """
    SELECT place FROM runs LEFT JOIN submitted_jobs ON seq = place >> 32
    WHERE seq IS NULL OR (place & 4294967295) > iterations OR ((place & 4294967295) = 0 AND iterations > 0)"""


def is_damaged(connection: sqlite3.Connection, *, whole: bool, thorough: bool = False) -> bool:
    """Whether there is a cell that no manager has written.

    `whole`: check all tables, not only the small ones. `thorough`: check the encoding of texts, too. The contents of
    job descriptions are not checked.
    """
    try:
        for table in _tables(connection, (_COLUMNS if thorough else READ_BY_COMMANDS) if whole else SMALL):
            if connection.execute(f"SELECT 1 FROM {table} WHERE ({_SOUND[table]}) IS NOT TRUE LIMIT 1").fetchone():
                return True
            if (thorough or table in SMALL) and not _is_text_valid(connection, table):
                return True
            if table in SMALL and not _is_structure_valid(connection, table):
                return True
        return whole and (
            connection.execute(f"{_MISPLACED} LIMIT 1").fetchone() is not None
            or not all(
                _is_grant(granted)
                for table in _tables(connection, ("runs", "past_attempts"))
                for (granted,) in connection.execute(f"SELECT DISTINCT granted FROM {table}")
            )
        )
    except (sqlite3.Error, UnicodeDecodeError):  # a damaged page; SQLite quotes parts of a damaged schema
        return True


def _is_structure_valid(connection: sqlite3.Connection, table: str) -> bool:
    """Whether every row can be found by its key: in a damaged page a search may fail, although all rows can be read."""
    (result,) = connection.execute(f"PRAGMA quick_check({table})").fetchone()
    return bool(result == "ok")


def salvage(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Copy the readable part of a registry to memory; the table `unreadable` of the copy lists the rest."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    copy.executescript(f"{TABLES} CREATE TABLE unreadable (what TEXT);")
    unreadable: list[str] = []
    factory, connection.text_factory = connection.text_factory, bytes
    try:
        for table in _tables(connection, _COLUMNS):
            _salvage_table(connection, copy, table, unreadable)
    finally:
        connection.text_factory = factory
    for (number,) in copy.execute(_MISPLACED).fetchall():
        seq, position = seq_and_position(number)
        unreadable.append(f"an attempt (job {seq}, position {position}): there is no such job or iteration")
        copy.execute("DELETE FROM runs WHERE place = ?", (number,))
    copy.executemany("INSERT INTO unreadable (what) VALUES (?)", [(what,) for what in unreadable])
    return copy


def _tables(connection: sqlite3.Connection, wanted: Collection[str]) -> list[str]:
    """The wanted tables that this registry has: registries of earlier versions lack some."""
    return [table for table in wanted if connection.execute(_HAS_TABLE, (table,)).fetchone()]


def unreadable_of(connection: sqlite3.Connection) -> list[str]:
    """The unreadable parts of the registry behind this connection; empty for a sound one."""
    if connection.execute(_HAS_TABLE, ("unreadable",)).fetchone() is None:
        return []
    return [what for (what,) in connection.execute("SELECT what FROM unreadable ORDER BY rowid")]


def in_words(unreadable: list[str]) -> str:
    """The first unreadable parts, and the number of the others."""
    more = len(unreadable) - MOST_NAMED
    return "; ".join(unreadable[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _salvage_table(connection: sqlite3.Connection, copy: sqlite3.Connection, table: str, unreadable: list[str]) -> None:
    key, columns = _KEYS[table], _COLUMNS[table]
    names = [key, *(column.name for column in columns if column.name != key)]
    checks = ", ".join(_valid(table, column) for column in columns)
    query = f"SELECT {', '.join(names)}, {checks} FROM {table} ORDER BY {key}"
    put = f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    for row in _rows(connection, query, table, unreadable):
        cells = dict(zip(names, row, strict=False))
        verdicts = dict(zip((column.name for column in columns), row[len(names) :], strict=True))
        for name, value in cells.items():
            if isinstance(value, bytes) and (name not in ("spec", "granted", "batch")):
                try:
                    cells[name] = value.decode()
                except UnicodeDecodeError:
                    cells[name] = value.decode("utf-8", "replace")
                    verdicts[name] = 0
        if table in ("runs", "past_attempts") and not _is_grant(cells["granted"]):
            verdicts["granted"] = 0
        wrong = [column for column in columns if not verdicts[column.name]]
        if wrong:
            unreadable.append(f"{_row_name(table, cells)}: {', '.join(column.name for column in wrong)}")
        if key not in verdicts and not isinstance(cells[key], (int, str)):
            continue
        if not any(column.required for column in wrong):
            cells.update({column.name: column.default for column in wrong})
            copy.execute(put, [cells[name] for name in names])


def _rows(connection: sqlite3.Connection, query: str, table: str, unreadable: list[str]) -> Iterator[tuple[Any, ...]]:
    """Read the rows from both ends up to the damaged pages."""
    seen = set()
    for order in ("", " DESC"):
        try:
            for row in connection.execute(query + order):
                if row[0] in seen:
                    return
                seen.add(row[0])
                yield row
            return
        except sqlite3.Error as error:
            if not order:
                unreadable.append(f"a part of table {table}: {error}")


_OF_PLACES = {"runs": "attempt", "past_attempts": "earlier attempt", "commands": "command", "holds": "hold"}


def _row_name(table: str, cells: dict[str, Any]) -> str:
    if table == "submitted_jobs":
        return f"job {cells['seq']} ({cells['name']!r})" if isinstance(cells["name"], str) else f"job {cells['seq']}"
    if table in _OF_PLACES and isinstance(cells["place"], int):
        seq, position = seq_and_position(cells["place"])
        what = _OF_PLACES[table]
        return f"{what} of job {seq}" if position < 0 else f"{what} of job {seq}, position {position}"
    return f"{table} {cells[_KEYS[table]]!r}"


def _valid(table: str, column: Column) -> str:
    return _META_VALID if table == "meta" else column.valid.format(column.name)


def _is_text_valid(connection: sqlite3.Connection, table: str) -> bool:
    """Whether all texts are UTF-8, which SQLite does not check. Many cells at a time: this check is frequent."""
    names = [
        column.name for column in _COLUMNS[table] if column.name in ("name", "message", "command", "value", "cause")
    ]
    if table == "meta":
        names.append("key")
    group = {"submitted_jobs": " GROUP BY seq >> 12", "runs": " GROUP BY place >> 40"}.get(table, "")
    factory, connection.text_factory = connection.text_factory, bytes
    try:
        for name in names:
            text_only = f"typeof({name}) = 'text' AND {name} <> ''"
            query = f"SELECT group_concat({name}) FROM {table} WHERE {text_only}{group}"
            for (text,) in connection.execute(query):
                if text is not None:
                    text.decode()
    except UnicodeDecodeError:
        return False
    finally:
        connection.text_factory = factory
    return True


def _is_grant(granted: Any) -> bool:
    try:
        return granted is None or bool(decode_grant(granted))
    except (msgspec.DecodeError, TypeError, ValueError):
        return False
