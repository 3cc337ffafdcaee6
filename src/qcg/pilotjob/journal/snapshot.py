"""A registry read from outside: of a run that has ended, that crashed, or that a live manager is writing to."""

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
from qcg.pilotjob.journal.schema import check_format, create_tables, tables_of

TRIES = 10


@contextlib.contextmanager
def snapshot(path: Path, *, foreign: bool = False, whole: bool = True) -> Iterator[sqlite3.Connection]:
    """A connection for the functions of `reading`, to the registry as it is now; nothing in its directory changes.

    `foreign`: it may belong to another user. Such a registry is never copied, and read only when its manager has closed
    it and its tables are exactly those that this program makes.

    A damaged registry is read as far as possible: `damage.unreadable_of` says what is missing then. Without `whole`
    only its metadata is checked, for questions that only count.

    Not for the process that has the registry open itself: reading the file would drop that manager's locks.
    """
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(contextlib.closing(_open(path, foreign=foreign)))
            check_format(connection, path)
            if foreign:
                _check_tables(connection, path)
            if is_damaged(connection, whole=whole):
                connection = stack.enter_context(contextlib.closing(salvage(connection)))
            connection.text_factory = _decode
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"The registry {path} could not be read: {error}.") from error
        try:
            yield connection
        except sqlite3.Error as error:
            raise JournalError(f"The registry {path} could not be read: {error}.") from error


def _open(path: Path, *, foreign: bool) -> sqlite3.Connection:
    try:
        (check_foreign_files if foreign else check_own_files)(path)
    except FileNotFoundError:
        raise JournalError(f"There is no registry at {path}; give the directory of a run.") from None
    except UnsafeFile as unsafe:
        raise JournalError(f"{unsafe.sentence}.") from None
    if foreign or not wal_header(path):
        # Closed by its manager: complete in itself.
        return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True, isolation_level=None)
    with uninterrupted(), tempfile.TemporaryDirectory(prefix="qcg-pm-") as directory:
        copy = Path(directory) / path.name
        _copy(path, copy)
        return _open_copy(copy)


def _open_copy(copy: Path) -> sqlite3.Connection:
    """SQLite has the files open from now on, so that they can be removed: however this process ends, none is left."""
    connection = sqlite3.connect(copy, isolation_level=None)
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _copy(path: Path, copy: Path) -> None:
    """Copy main file and WAL so that the two fit together, though a manager may be writing.

    A WAL only grows until it begins anew with another header. So when the header is the same before and after, the
    copied WAL holds the last committed content of every page that may have changed while the main file was copied;
    what is torn at its end is not yet committed, which SQLite sees from the checksums.
    """
    for _ in range(TRIES):
        header = wal_header(path)
        Path(f"{copy}-wal").unlink(missing_ok=True)
        copy_own(path, copy)
        with contextlib.suppress(FileNotFoundError):
            copy_own(Path(f"{path}-wal"), Path(f"{copy}-wal"))
        if header == wal_header(path):
            return
    raise JournalError(f"The registry {path} changes too fast to be read now; try again when its manager is less busy.")


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """A view or a trigger of another user's making could keep SQLite busy for ever."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as expected:
        create_tables(expected)
        if not set(tables_of(connection)) <= set(tables_of(expected)):
            raise JournalError(f"{path} is no registry of this version: its tables are others; its owner can read it.")


def _decode(text: bytes) -> str:
    """What is no UTF-8 shows as replacement characters."""
    return text.decode("utf-8", "replace")
