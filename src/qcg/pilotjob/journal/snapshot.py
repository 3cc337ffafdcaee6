"""A registry read from outside: of a run that has ended, that crashed, or that a live manager is writing to."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.schema import check_format

WAL_HEADER_SIZE = 32
TRIES = 10


@contextlib.contextmanager
def snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for the functions of `reading`, to the registry as it is now; nothing in its directory changes.

    Not for the process that has the registry open itself: reading the file would drop that manager's locks.
    """
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(contextlib.closing(_open(path, stack)))
            check_format(connection, path)
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"The registry {path} could not be read: {error}.") from error
        try:
            yield connection
        except sqlite3.Error as error:
            raise JournalError(f"The registry {path} could not be read: {error}.") from error


def _open(path: Path, stack: contextlib.ExitStack) -> sqlite3.Connection:
    if not path.is_file():
        raise JournalError(f"There is no registry at {path}; give the directory of a run.")
    if not _wal_header(path):
        # Closed by its manager: complete in itself.
        return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True, isolation_level=None)
    copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qcg-pm-"))) / path.name
    _copy(path, copy)
    connection = sqlite3.connect(copy, isolation_level=None)
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    return connection


def _copy(path: Path, copy: Path) -> None:
    """Copy main file and WAL so that the two fit together, though a manager may be writing.

    A WAL only grows until it begins anew with another header. So when the header is the same before and after, the
    copied WAL holds the last committed content of every page that may have changed while the main file was copied;
    what is torn at its end is not yet committed, which SQLite sees from the checksums.
    """
    for _ in range(TRIES):
        header = _wal_header(path)
        Path(f"{copy}-wal").unlink(missing_ok=True)
        shutil.copyfile(path, copy)
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        if header == _wal_header(path):
            return
    raise JournalError(f"The registry {path} changes too fast to be read now; try again when its manager is less busy.")


def _wal_header(path: Path) -> bytes:
    """Empty when there is no WAL, or nothing in it."""
    try:
        descriptor = os.open(f"{path}-wal", os.O_RDONLY)
    except FileNotFoundError:
        return b""
    try:
        return os.read(descriptor, WAL_HEADER_SIZE)
    finally:
        os.close(descriptor)
