"""A private copy of a registry that follows its manager, for displays that read a run for a long time.

A manager opens its registry with an exclusive lock, so that no other process may open the file. Displays read a copy in
the temporary directory, and copy new data when they refresh.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from urllib.parse import quote

from qcg.pilotjob.common.uninterrupted import uninterrupted
from qcg.pilotjob.journal.damage import is_damaged
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.registry_files import WAL_HEADER_SIZE, copy_own, wal_header
from qcg.pilotjob.journal.replica_directory import ReplicaDirectory
from qcg.pilotjob.journal.snapshot import TRIES, changes_too_fast, check_files, readable_part, reading
from qcg.pilotjob.journal.wal_copy import WalCopy, WalRestarted

SHARE = 0.05
"""The largest part of the time that goes into refreshing."""


class _FileState(NamedTuple):
    inode: int
    size: int
    modified: int


class _Copy(NamedTuple):
    """A complete copy."""

    main: Path
    state: _FileState
    """The main file of the registry before it was copied."""
    wal: WalCopy | None


class RegistryReplica:
    """A copy of a registry, refreshed on request. Its methods may be called from any thread.

    While the WAL of the registry grows, only its new frames are copied. The main file is copied again when the WAL was
    restarted, removed or created. The copy is consistent as `snapshot` explains. Connections are read-only and keep
    their content: a later refresh does not change what an open connection shows.

    The whole registry is checked for damage once, before the first connection is returned. That takes two seconds for a
    million attempts; without `whole`, only the metadata is checked, and `find_damage` checks the rest. Connections to a
    damaged registry show what can be read; `damage.unreadable_of` lists the rest.
    """

    def __init__(self, path: Path, *, whole: bool = True) -> None:
        """`path`: the registry, a file. Raises JournalError when there is none, or when it may not be read."""
        check_files(path)
        self.version = 0
        """Grows when a refresh finds changes."""
        self.bytes_copied = 0
        self._path = path
        self._whole = whole
        self._lock = threading.RLock()
        self._next_refresh = 0.0
        self._copy: _Copy | None = None
        self._copies = 0
        self._links = 0
        self._damaged = False
        self._directory = ReplicaDirectory()

    def __enter__(self) -> RegistryReplica:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the copy. Connections that are open remain usable."""
        with self._lock:
            self._directory.close()

    def refresh(self, *, now: bool = False) -> sqlite3.Connection:
        """A new connection to the current state of the registry. The caller closes it.

        Refreshes take at most a twentieth of the time: soon after the last one, the connection shows the same as
        before, unless the caller insists with `now`.
        """
        with self._lock, reading(self._path):
            began = time.monotonic()
            if not (now or began >= self._next_refresh):
                return self._connect()
            self._update()
            connection = self._connect()
            ended = time.monotonic()
            self._next_refresh = ended + (ended - began) * (1 / SHARE - 1)
            return connection

    def connect(self) -> sqlite3.Connection:
        """A new connection to the state at the last refresh, for another thread. The caller closes it."""
        with self._lock, reading(self._path):
            if self._copy is None:
                self._update()
            return self._connect()

    def find_damage(self) -> bool:
        """Check the whole registry for damage. Later connections show the readable part of a damaged one."""
        with self._lock, reading(self._path):
            connection = self._open_copy()
        try:
            damaged = is_damaged(connection, whole=True)
        finally:
            connection.close()
        if damaged:
            self._damaged = True
        return damaged

    def _connect(self) -> sqlite3.Connection:
        connection = self._open_copy()
        try:
            readable = readable_part(connection, self._path, whole=self._whole or self._damaged)
        except BaseException:
            connection.close()
            raise
        self._whole = False  # managers do not write to a damaged registry, and damage is not repaired
        if readable is not connection:
            self._damaged = True
            connection.close()
        return readable

    def _update(self) -> None:
        for _ in range(TRIES):
            check_files(self._path)
            header = wal_header(self._path)
            try:
                if self._copy is not None and self._follow(self._copy, header):
                    return
                self._replace_copy(self._new_copy(header))
                return
            except WalRestarted:
                continue
        raise changes_too_fast(self._path)

    def _follow(self, copy: _Copy, header: bytes) -> bool:
        """Bring the copy up to date; False when the main file has to be copied again."""
        if copy.wal is None:
            return len(header) < WAL_HEADER_SIZE and copy.state == _state_of(self._path)
        if copy.wal.header != header:
            return False
        before = copy.wal.committed
        self.bytes_copied += copy.wal.extend()
        self.version += copy.wal.committed != before
        return True

    def _new_copy(self, header: bytes) -> _Copy:
        """Copy the whole registry. Raises WalRestarted when it changed meanwhile."""
        state = _state_of(self._path)
        self._copies += 1
        main = self._directory.path / f"copy{self._copies}.sqlite"
        try:
            copy_own(self._path, main)
            self.bytes_copied += state.size
            if len(header) == WAL_HEADER_SIZE:
                wal = WalCopy(self._path, _wal_of(main), header)
                self.bytes_copied += wal.extend()
                return _Copy(main, state, wal)
            if len(wal_header(self._path)) == WAL_HEADER_SIZE or _state_of(self._path) != state:
                raise WalRestarted
        except BaseException:
            _unlink(main)
            raise
        return _Copy(main, state, None)

    def _replace_copy(self, copy: _Copy) -> None:
        if self._copy is not None:  # connections that read it keep its files open
            _unlink(self._copy.main)
        self._copy = copy
        self.version += 1

    def _open_copy(self) -> sqlite3.Connection:
        """Open the copy under names of its own, which are removed at once.

        A connection in exclusive mode reads the WAL once, when it is opened, and keeps its index in memory. So several
        connections without locks can share the files, while frames are appended to the WAL. A connection that is
        closed tries to write the WAL to the main file, which it has opened for reading only, and to remove the WAL,
        whose name is gone.
        """
        copy = self._copy
        if copy is None:
            raise JournalError(f"The registry {self._path} was not copied yet.")
        self._links += 1
        link = self._directory.path / f"link{self._links}.sqlite"
        names = {copy.main: link} if copy.wal is None else {copy.main: link, _wal_of(copy.main): _wal_of(link)}
        how = "immutable=1" if copy.wal is None else "vfs=unix-none"
        connection = None
        with uninterrupted():
            try:
                for file, name in names.items():
                    os.link(file, name)
                connection = sqlite3.connect(
                    f"file:{quote(str(link))}?mode=ro&{how}", uri=True, isolation_level=None, check_same_thread=False
                )
                connection.execute("PRAGMA locking_mode=EXCLUSIVE")
                connection.execute("PRAGMA synchronous=OFF")
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except BaseException:
                if connection is not None:
                    connection.close()
                raise
            finally:
                for name in names.values():
                    name.unlink(missing_ok=True)
        return connection


def _state_of(path: Path) -> _FileState:
    status = os.stat(path)
    return _FileState(status.st_ino, status.st_size, status.st_mtime_ns)


def _wal_of(main: Path) -> Path:
    return main.with_name(f"{main.name}-wal")


def _unlink(main: Path) -> None:
    for file in (main, _wal_of(main)):
        file.unlink(missing_ok=True)
