"""Tables of the registry, and how its file is opened."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import sqlite3
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal.errors import JournalError, RegistryInUseError

FORMAT = 6
EARLIER_FORMATS = (4, 5)
"""Formats that are read as they are, and that a manager brings up to date when it resumes their run."""

FINAL = int(State.SUCCEED)
"""The first of the final states."""

# The description of a job is the last column of its row: queries without it do not read its pages.
#
# The table `runs` holds attempts. The end of a job without iterations is written once, with its attempt. Only the end
# of a job that has iterations or never started is written to its own row. The view `jobs` shows both.
#
# A `place` is the key of a job or iteration. Its row in `runs` is its latest attempt, or its end when it never started
# (attempt 0, nothing scheduled); state QUEUED is a requeued attempt, kept because its number must not be used again.
# The single integer is SQLite's rowid, so that an update costs half of an update with a key of three columns.
#
# The command line of an attempt is stored where it depends on more than the description and the grant: for models that
# start a process for each core.
#
# The ends of jobs are numbered: clients ask for the ends after the last one that they have seen. A row of `ends` is a
# batch of consecutive ends with the number of the last one. It stays when its jobs are removed: numbers are not reused.
#
# Earlier attempts of jobs that were queued again are in `past_attempts`, with the number of the attempt. `counted`: it
# counts against the retries of its cause. `next_at`: the next attempt pauses until then.
#
# The last columns of attempts have their resource usage; registries of earlier formats lack them. `rerun_at`: when the
# job was run again; 0 for a retry, and for the attempts of registries that lacked the column.
#
# Jobs and iterations that are held are in `holds`. An iteration with time 0 was released, while the rest of its job is
# held.
#
# Most columns have 0 or '' instead of NULL, and blobs are passed as bytearray: the sqlite3 module passes None and bytes
# through its adapters, which takes longer than the rest of a row.
ENDS = "CREATE TABLE IF NOT EXISTS ends (last INTEGER PRIMARY KEY, batch BLOB);"
USAGE = ("user", "system", "memory", "minor_faults", "major_faults", "read", "written")
"""Resource-usage columns of attempts, as in `host.usage.Usage`; 0 where not measured."""
_USAGE_COLUMNS = [f"{name} INTEGER DEFAULT 0" for name in USAGE]
_USAGE = ", ".join(["", *_USAGE_COLUMNS])  # as SQLite writes the columns that are added to an existing table
_RERUN_AT = "rerun_at REAL DEFAULT 0"
_ADDED_COLUMNS = {"runs": _USAGE_COLUMNS, "past_attempts": [*_USAGE_COLUMNS, _RERUN_AT]}
"""Columns that registries of earlier versions lack, by table; SQLite writes added columns in this order."""
PAST_ATTEMPTS = f"""
CREATE TABLE IF NOT EXISTS past_attempts (
    number INTEGER PRIMARY KEY,
    place INTEGER,
    attempt INTEGER,
    cause TEXT,
    counted INTEGER,
    next_at REAL,
    scheduled REAL,
    started REAL,
    ended REAL,
    pid INTEGER,
    exit_code INTEGER,
    granted BLOB,
    message TEXT
{_USAGE}, {_RERUN_AT});
CREATE INDEX IF NOT EXISTS past_attempts_by_place ON past_attempts (place, attempt);"""
HOLDS = "CREATE TABLE IF NOT EXISTS holds (place INTEGER PRIMARY KEY, since REAL);"
TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE agents (name TEXT PRIMARY KEY, acked INTEGER) WITHOUT ROWID;
CREATE TABLE submitted_jobs (
    seq INTEGER PRIMARY KEY,
    name TEXT,
    submitted REAL,
    iterations INTEGER,
    state INTEGER DEFAULT 0,
    started REAL DEFAULT 0,
    ended REAL DEFAULT 0,
    message TEXT DEFAULT '',
    rest INTEGER DEFAULT 0,
    rest_at REAL DEFAULT 0,
    spec BLOB
);
CREATE TABLE runs (
    place INTEGER PRIMARY KEY,
    attempt INTEGER,
    state INTEGER,
    scheduled REAL DEFAULT 0,
    started REAL DEFAULT 0,
    ended REAL DEFAULT 0,
    pid INTEGER DEFAULT 0,
    exit_code INTEGER,
    granted BLOB,
    killed INTEGER DEFAULT 0,
    message TEXT
{_USAGE});
CREATE TABLE commands (place INTEGER PRIMARY KEY, command TEXT);
{ENDS}
{PAST_ATTEMPTS}
{HOLDS}
CREATE VIEW jobs AS
    SELECT
        seq,
        name,
        submitted,
        iterations,
        CASE WHEN only.state >= {FINAL} THEN only.state ELSE job.state END AS state,
        job.started AS started,
        CASE WHEN only.state >= {FINAL} THEN only.ended ELSE job.ended END AS ended,
        CASE WHEN only.state >= {FINAL} THEN only.message ELSE job.message END AS message,
        rest,
        rest_at,
        spec
    FROM submitted_jobs AS job LEFT JOIN runs AS only ON only.place = job.seq << 32;
"""

KILLED = 1
"""Value of the column `killed`: the job was cancelled."""
STOPPED = 2
"""Value of the column `killed`: the attempt was ended with its manager, and the job waits for the next one."""

TOGETHER = 4
"""Value of the column `killed`: the iteration became final with many others, and has no entry in `jobs.report`."""

SECONDS_TO_WAIT_FOR_A_LOCK = 1.0
TRIES = 3
"""Number of times that the registry is opened while another process holds its lock. Two managers that open it at the
same moment may refuse each other; after pauses of random lengths, one of them gets it."""
LONGEST_PAUSE = 0.5
"""Longest of these pauses, in seconds."""
PAGES_BETWEEN_CHECKPOINTS = 16384


def place(seq: int, position: int) -> int:
    """The row key of a job (position -1) or iteration. All keys of a job lie between `place(seq, -1)` and
    `place(seq + 1, -1)`."""
    return seq << 32 | position + 1


def seq_and_position(place: int) -> tuple[int, int]:
    return place >> 32, (place & 0xFFFFFFFF) - 1


def connect(path: Path) -> sqlite3.Connection:
    """Open the registry as the only manager that owns it."""
    for _ in range(TRIES):
        try:
            return _connect(path, "")
        except sqlite3.OperationalError as error:
            # Without file locks SQLite fails in several ways, one of them as if another process held the lock.
            if not locks_work(path.parent):
                return _connect(path, "&vfs=unix-none")
            if "locked" not in str(error):
                raise
            time.sleep(random.uniform(0.0, LONGEST_PAUSE))
    raise RegistryInUseError(
        f"The registry {path} is in use by another manager; end that one first, or give another run directory."
    )


def _connect(path: Path, parameters: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw{parameters}",
        uri=True,
        isolation_level=None,
        timeout=SECONDS_TO_WAIT_FOR_A_LOCK,
    )
    try:
        # Exclusive before the first access in WAL mode: SQLite then keeps the index of the WAL in memory, not in a
        # shared mapping, which network file systems do not support.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint={PAGES_BETWEEN_CHECKPOINTS}")
        connection.execute(f"PRAGMA journal_size_limit={PAGES_BETWEEN_CHECKPOINTS * 4096}")
        connection.execute("PRAGMA cache_size=-8192")
        # SQLite takes the lock with the first write, not with the pragmas.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def locks_work(directory: Path) -> bool:
    """Whether the file system of this directory supports POSIX locks, tried on a temporary file."""
    with tempfile.TemporaryFile(dir=directory) as probe:
        try:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in (errno.EACCES, errno.EAGAIN)
    return True


def create_tables(connection: sqlite3.Connection) -> None:
    connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version={FORMAT}; COMMIT;")


def prepare_existing(connection: sqlite3.Connection, path: Path) -> None:
    """Check the format, and add the tables and columns that registries of earlier 1.0 versions lack."""
    check_format(connection, path)
    lacking = _missing_columns(connection)
    views = "".join(f"DROP VIEW IF EXISTS temp.{table};" for table in lacking)
    columns = "".join(
        f"ALTER TABLE main.{table} ADD COLUMN {column};" for table, missing in lacking.items() for column in missing
    )
    tables = f"{ENDS} {PAST_ATTEMPTS} {HOLDS}"
    connection.executescript(f"{views} BEGIN; {columns} {tables} PRAGMA user_version={FORMAT}; COMMIT;")


def complete_columns(connection: sqlite3.Connection) -> None:
    """Let queries find the columns that registries of earlier versions lack, without a change of the file."""
    for table, missing in _missing_columns(connection).items():
        zeros = ", ".join(f"0 AS {column.split()[0]}" for column in missing)
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"CREATE TEMP VIEW IF NOT EXISTS {table} AS SELECT *, {zeros} FROM main.{table}")


def _missing_columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Definitions of the columns that a registry of an earlier version lacks, by table."""
    found = {}
    for table, added in _ADDED_COLUMNS.items():
        names = {name for _, name, *_ in connection.execute(f"PRAGMA main.table_info({table})")}
        missing = [column for column in added if column.split()[0] not in names]
        if names and missing:
            found[table] = missing
    return found


def earlier_tables() -> tuple[str, str]:
    """The tables as earlier versions have them: without the times of reruns, and also without resource usage."""
    without_reruns = TABLES.replace(f", {_RERUN_AT}", "")
    return without_reruns, without_reruns.replace(_USAGE, "")


def tables_of(connection: sqlite3.Connection) -> list[tuple[str, str, str | None]]:
    """Type, name and SQL of all tables, views and triggers of the file."""
    return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found == 0:
        raise JournalError(f"{path} holds no registry: it was never completely created; start a new run instead.")
    if found not in (FORMAT, *EARLIER_FORMATS):
        raise JournalError(
            f"The registry {path} has format {found}, this program reads format {FORMAT};"
            " use the version that wrote it."
        )


def sync_directory(directory: Path) -> None:
    """Sync a directory, so that new file names survive a crash of the machine."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
