"""The tables of the registry, and how its file is opened."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import tempfile
from pathlib import Path
from urllib.parse import quote

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal.errors import JournalError, RegistryInUseError

FORMAT = 4

FINAL = int(State.SUCCEED)
"""From this state on, nothing changes any more."""

# The description of a job is the last column of its row: what does not ask for it needs not read a long one.
#
# The end of a job without iterations is written once, with its run. Only that of a job which has iterations, or never
# ran, is written to its own row. `jobs` shows both.
#
# A place is a job or one of its iterations. Its row is its latest run, or its end when it never ran (attempt 0, nothing
# scheduled); state QUEUED is a run that was forgotten, kept because its attempt number is used up. The one integer is
# the row's address in SQLite, so that a change at a run's end costs half of what a key of three columns costs.
#
# The command of a run is stored where it depends on more than the description and the grant: under the models that
# start a process for each core.
#
# Each end of a job has a number: clients ask for the ends after the last one that they have seen. A row is a batch of
# consecutive ends and the number of the last one. It stays when its jobs are removed: numbers are never reused.
#
# 0 and '' stand for "nothing yet" in most columns, and blobs are given as bytearray: the sqlite3 module sends None and
# bytes through its adapters, which takes longer than all the rest of a row.
ENDS = "CREATE TABLE IF NOT EXISTS ends (last INTEGER PRIMARY KEY, batch BLOB);"
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
);
CREATE TABLE commands (place INTEGER PRIMARY KEY, command TEXT);
{ENDS}
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
"""In the column of that name: its job was cancelled."""
STOPPED = 2
"""Its manager ended: its job waits for another one."""

TOGETHER = 4
"""The iteration was settled together with many others: `jobs.report` has no entry for it."""

SECONDS_TO_WAIT_FOR_A_LOCK = 1.0
PAGES_BETWEEN_CHECKPOINTS = 16384


def place(seq: int, position: int) -> int:
    """Job and iteration in one number; all places of a job, from position -1 on, lie between `place(seq, -1)` and
    `place(seq + 1, -1)`."""
    return seq << 32 | position + 1


def seq_and_position(place: int) -> tuple[int, int]:
    return place >> 32, (place & 0xFFFFFFFF) - 1


def connect(path: Path) -> sqlite3.Connection:
    """The connection of the one manager that owns the registry from now on."""
    try:
        return _connect(path, "")
    except sqlite3.OperationalError as error:
        # A file system without locks shows itself in several ways, one of them the same as a lock held by others.
        if not locks_work(path.parent):
            return _connect(path, "&vfs=unix-none")
        if "locked" in str(error):
            raise RegistryInUseError(
                f"The registry {path} is in use by another manager; end that one first, or give another run directory."
            ) from None
        raise


def _connect(path: Path, parameters: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw{parameters}",
        uri=True,
        isolation_level=None,
        timeout=SECONDS_TO_WAIT_FOR_A_LOCK,
    )
    try:
        # Exclusive before the first access in WAL mode: then the WAL's index is in memory, not in a shared mapping that
        # network file systems do not have.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint={PAGES_BETWEEN_CHECKPOINTS}")
        connection.execute(f"PRAGMA journal_size_limit={PAGES_BETWEEN_CHECKPOINTS * 4096}")
        connection.execute("PRAGMA cache_size=-8192")
        # The lock is taken with the first write, not with the pragmas.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def locks_work(directory: Path) -> bool:
    """Whether the file system of this directory has POSIX locks, tried on a file of its own."""
    with tempfile.TemporaryFile(dir=directory) as probe:
        try:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in (errno.EACCES, errno.EAGAIN)
    return True


def create_tables(connection: sqlite3.Connection) -> None:
    connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version={FORMAT}; COMMIT;")


def prepare_existing(connection: sqlite3.Connection, path: Path) -> None:
    """Check the format, and add the table that registries of earlier 1.0 versions lack."""
    check_format(connection, path)
    connection.execute(ENDS)


def tables_of(connection: sqlite3.Connection) -> list[tuple[str, str, str | None]]:
    """Kind, name and definition of everything that the file defines."""
    return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found == 0:
        raise JournalError(f"{path} holds no registry: it was never completely created; start a new run instead.")
    if found != FORMAT:
        raise JournalError(
            f"The registry {path} has format {found}, this program reads format {FORMAT};"
            " use the version that wrote it."
        )


def sync_directory(directory: Path) -> None:
    """Make new names in a directory survive a crash of the machine."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
