"""Read-only snapshots of a registry: of an ended, crashed or live run."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from qcg.pilotjob.common.uninterrupted import uninterrupted
from qcg.pilotjob.host.safe_open import UnsafeFile
from qcg.pilotjob.journal.damage import is_damaged, salvage
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.registry_files import check_foreign_files, check_own_files, copy_own, wal_header
from qcg.pilotjob.journal.schema import check_format, complete_columns, create_tables, earlier_tables, tables_of

TRIES = 10


@contextlib.contextmanager
def snapshot(path: Path, *, foreign: bool = False, whole: bool = True) -> Iterator[sqlite3.Connection]:
    """Open a connection to the current state of a registry; nothing in its directory changes.

    `foreign`: the registry may belong to another user. Such a registry is never copied, and is read only when its
    manager has closed it and its tables are exactly the tables that this program creates.

    The readable part of a damaged registry is returned; `damage.unreadable_of` lists the rest. Without `whole` only
    metadata is checked for damage, for queries that only count.

    A manager must not take a snapshot of its own registry: closing the file would release its locks.
    """
    with contextlib.ExitStack() as stack:
        with reading(path):
            connection = stack.enter_context(contextlib.closing(_open(path, foreign=foreign)))
            if foreign:
                check_format(connection, path)
                _check_tables(connection, path)
            readable = readable_part(connection, path, whole=whole)
            if readable is not connection:
                connection = stack.enter_context(contextlib.closing(readable))
        try:
            yield connection
        except sqlite3.Error as error:
            raise JournalError(f"The registry {path} could not be read: {error}.") from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of the system and of SQLite into a sentence about the registry at `path`."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise JournalError(f"The registry {path} could not be read: {error}.") from error
    except UnicodeDecodeError as error:  # in a message of SQLite, which quotes the schema
        raise JournalError(f"The registry {path} could not be read: its schema is damaged.") from error


def readable_part(connection: sqlite3.Connection, path: Path, *, whole: bool) -> sqlite3.Connection:
    """The connection itself, prepared for queries; of a damaged registry, a connection to its readable part."""
    check_format(connection, path)
    complete_columns(connection)
    if is_damaged(connection, whole=whole):
        connection = salvage(connection)
    connection.text_factory = _decode
    return connection


def check_files(path: Path, *, foreign: bool = False) -> None:
    """Raise JournalError unless there is a registry at `path` that may be read."""
    try:
        (check_foreign_files if foreign else check_own_files)(path)
    except FileNotFoundError:
        raise JournalError(f"There is no registry at {path}; give the directory of a run.") from None
    except UnsafeFile as unsafe:
        raise JournalError(f"{unsafe.sentence}.") from None


def _open(path: Path, *, foreign: bool) -> sqlite3.Connection:
    check_files(path, foreign=foreign)
    if foreign or not wal_header(path):
        # Closed by its manager: the main file is complete.
        return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True, isolation_level=None)
    with uninterrupted(), tempfile.TemporaryDirectory(prefix="qcg-pm-") as directory:
        copy = Path(directory) / path.name
        _copy(path, copy)
        return _open_copy(copy)


def _open_copy(copy: Path) -> sqlite3.Connection:
    """Open a copy completely, so that its files can be removed at once: none is left, however this process ends."""
    connection = sqlite3.connect(copy, isolation_level=None)
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _copy(path: Path, copy: Path) -> None:
    """Copy a consistent pair of main file and WAL while a manager may be writing.

    A WAL grows until it is restarted with another header. When the header is the same before and after, the copied WAL
    has the last committed content of every page that may have changed while the main file was copied. A torn end of the
    WAL is not committed, which SQLite detects from the checksums.
    """
    for _ in range(TRIES):
        header = wal_header(path)
        Path(f"{copy}-wal").unlink(missing_ok=True)
        copy_own(path, copy)
        with contextlib.suppress(FileNotFoundError):
            copy_own(Path(f"{path}-wal"), Path(f"{copy}-wal"))
        if header == wal_header(path):
            return
    raise changes_too_fast(path)


def changes_too_fast(path: Path) -> JournalError:
    return JournalError(
        f"The registry {path} changes too fast to be read now; try again when its manager is less busy."
    )


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse views and triggers that another user has made: a query on them may never end."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as expected:
        create_tables(expected)
        known = set(tables_of(expected))
    for tables in earlier_tables():
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as earlier:
            earlier.executescript(tables)
            known.update(tables_of(earlier))
    if not set(tables_of(connection)) <= known:
        raise JournalError(f"{path} is no registry of this version: its tables are others; its owner can read it.")


def _decode(text: bytes) -> str:
    """Show invalid UTF-8 as replacement characters."""
    return text.decode("utf-8", "replace")
