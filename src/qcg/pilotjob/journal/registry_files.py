"""Checks of the files of a registry before SQLite opens them by name.

SQLite follows links and opens any file with the right name. So each file of a registry must be a regular file that
belongs to the caller.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_file, open_own, open_regular
from qcg.pilotjob.journal.errors import JournalError

FILE_NAME = "registry.sqlite"
"""Name of the registry in a run directory."""
WAL_HEADER_SIZE = 32
_MAGIC = b"SQLite format 3\0"
_COMPANIONS = ("-wal", "-shm", "-journal")


def check_own_files(path: Path) -> None:
    """Check the files of a registry of this user; raises UnsafeFile or FileNotFoundError.

    Opens no file: a process that has the registry open would lose its locks."""
    check_own_file(path)
    for suffix in _COMPANIONS:
        with suppress(FileNotFoundError):
            check_own_file(f"{path}{suffix}")


def check_foreign_files(path: Path) -> None:
    """Check the registry of another user, which is read in place: the main file must be complete."""
    os.close(open_regular(path))
    for suffix in _COMPANIONS:
        with suppress(FileNotFoundError):
            if suffix != "-shm" and os.lstat(f"{path}{suffix}").st_size:
                raise UnsafeFile("its manager has not closed it, and only its owner can read it before", path)


def wal_header(path: Path) -> bytes:
    """The header of the WAL; empty when there is no WAL, or an empty one."""
    try:
        descriptor = open_own(f"{path}-wal")
    except FileNotFoundError:
        return b""
    try:
        return os.read(descriptor, WAL_HEADER_SIZE)
    finally:
        os.close(descriptor)


def copy_own(path: Path, copy: Path) -> None:
    """Copy one file of a registry; raises JournalError for a file of another kind, and without enough space."""
    with os.fdopen(open_own(path), "rb") as source:
        size = os.fstat(source.fileno()).st_size
        if not path.name.endswith(_COMPANIONS) and os.pread(source.fileno(), len(_MAGIC), 0) != _MAGIC:
            raise JournalError(
                f"{path} holds no registry: it was never completely created, or something else replaced it."
            )
        free = shutil.disk_usage(copy.parent).free
        if size > free:
            raise JournalError(
                f"The registry {path} has {size >> 20} MiB, and {copy.parent.parent} has room for {free >> 20} MiB; set"
                " TMPDIR to a directory with more room."
            )
        with copy.open("wb") as target:
            shutil.copyfileobj(source, target)
