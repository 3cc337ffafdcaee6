"""A copy of a registry that follows the manager, for queries of displays from any thread."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.replica import RegistryReplica

T = TypeVar("T")
P = ParamSpec("P")

SHORTEST_AGE = 0.5
"""Seconds for which a copy is used before the next refresh."""
PART_OF_TIME = 0.05
"""The largest share of time spent on refreshing, including the time to open copies."""
MOST_CONNECTIONS = 4
"""Connections that are kept open for the next queries."""


class RunRegistry:
    """Runs queries on the current content of a registry. Queries of several threads run at the same time."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / FILE_NAME
        self._lock = threading.Lock()
        self._replica: RegistryReplica | None = None
        self._idle: list[tuple[int, sqlite3.Connection]] = []
        """Idle connections, with the generation of the copy that each one reads."""
        self._generation = 0
        """Grows with each refresh that has found changes."""
        self._next_refresh = 0.0
        self._closed = False

    def read(
        self, query: Callable[Concatenate[sqlite3.Connection, P], T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """The result of a query. Raises JournalError when the registry cannot be read."""
        return self.read_versioned(lambda connection, _: query(connection, *arguments, **options))

    def read_versioned(self, query: Callable[[sqlite3.Connection, int], T]) -> T:
        """The result of a query that also takes the version of the registry, a number."""
        generation, connection = self._borrow()
        with ExitStack() as stack:
            stack.callback(self._give_back, generation, connection)
            try:
                return query(connection, generation)
            except sqlite3.Error as error:
                raise JournalError(f"The registry {self._path} could not be read: {error}.") from error

    def close(self) -> None:
        """Remove the copy. Running queries complete."""
        with self._lock:
            self._closed = True
            for _, connection in self._idle:
                connection.close()
            self._idle.clear()
            if self._replica is not None:
                self._replica.close()

    def _borrow(self) -> tuple[int, sqlite3.Connection]:
        with self._lock:
            if self._closed:
                raise JournalError("The run was closed.")
            if time.monotonic() >= self._next_refresh:
                self._refresh()
            for number, (generation, connection) in enumerate(self._idle):
                if generation == self._generation:
                    del self._idle[number]
                    return generation, connection
            assert self._replica is not None
            return self._generation, self._replica.connect()

    def _give_back(self, generation: int, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed and generation == self._generation and len(self._idle) < MOST_CONNECTIONS:
                self._idle.append((generation, connection))
                return
        connection.close()

    def _refresh(self) -> None:
        began = time.monotonic()
        if self._replica is None:
            # Without a check of every cell, which takes seconds for a million attempts: damage is an error of a query.
            self._replica = RegistryReplica(self._path, whole=False)
        before = self._replica.version
        connection = self._replica.refresh(now=True)
        if self._replica.version != before:
            self._generation += 1
            for _, old in self._idle:
                old.close()
            self._idle.clear()
        if len(self._idle) < MOST_CONNECTIONS:
            self._idle.append((self._generation, connection))
        else:
            connection.close()
        ended = time.monotonic()
        self._next_refresh = ended + max(SHORTEST_AGE, (ended - began) * (1 / PART_OF_TIME - 1))
