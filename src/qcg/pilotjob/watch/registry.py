"""The registry of a run as displays read it: a copy that is refreshed while a manager writes, read by one thread."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.snapshot import snapshot

T = TypeVar("T")
P = ParamSpec("P")

PART_OF_TIME = 0.05
"""The largest part of the time that goes into copying a registry that changes all the time."""
SHORTEST_AGE = 0.2
"""Seconds for which a copy is used without a check of the files."""

Version = tuple[int, ...]
"""Sizes and times of the files of a registry: equal while nothing was written."""


class RunRegistry:
    """Runs queries on the current content of a registry, one after another in a thread of its own.

    SQLite connections belong to the thread that opened them; displays call from any thread.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / FILE_NAME
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="registry")
        self._open = ExitStack()
        self._connection: sqlite3.Connection | None = None
        self._version: Version = ()
        self._next_check = 0.0
        self._lock = threading.Lock()
        self._closed = False

    def read(
        self, query: Callable[Concatenate[sqlite3.Connection, P], T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """The result of a query. Raises JournalError when the registry cannot be read."""
        return self._thread.submit(self._run, lambda connection: query(connection, *arguments, **options)).result()

    def version(self) -> Version:
        """What the files look like now, without reading them."""
        return _version_of(self._path)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._thread.submit(self._open.close).result()
        self._thread.shutdown()

    def _run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return query(self._current())
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"The registry {self._path} could not be read: {error}.") from error

    def _current(self) -> sqlite3.Connection:
        now = time.monotonic()
        if self._connection is not None and now < self._next_check:
            return self._connection
        version = _version_of(self._path)
        if self._connection is None or version != self._version:
            self._open.close()
            self._connection = None
            self._connection = self._open.enter_context(snapshot(self._path, whole=False))
            self._version = version
        took = time.monotonic() - now
        self._next_check = time.monotonic() + max(SHORTEST_AGE, took / PART_OF_TIME)
        return self._connection


def _version_of(path: Path) -> Version:
    found: list[int] = []
    for name in (path, Path(f"{path}-wal")):
        try:
            status = os.stat(name)
            found += [status.st_size, status.st_mtime_ns, status.st_ino]
        except OSError:
            found += [0, 0, 0]
    return tuple(found)
