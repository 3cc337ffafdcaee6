"""What can be asked of a registry, whoever has it open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal import reading
from qcg.pilotjob.journal.metadata import MetadataKey, T
from qcg.pilotjob.journal.records import JobRecord, RunRecord


class Questions:
    """Of a connection: to a snapshot, or the manager's own."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def job_records(self) -> Iterator[JobRecord]:
        return reading.job_records(self._current())

    def job_record(self, seq: int) -> JobRecord | None:
        return reading.job_record(self._current(), seq)

    def spec_of(self, seq: int) -> bytes | None:
        """The encoded description."""
        return reading.spec_of(self._current(), seq)

    def run_records(self) -> Iterator[RunRecord]:
        """Of all jobs, in the order of submission."""
        return reading.run_records(self._current())

    def runs_of(self, seq: int, positions: Iterable[int] | None = None) -> Iterator[RunRecord]:
        """What is known of a job's runs, or of those of some iterations; -1 is the position of a job without any."""
        return reading.runs_of(self._current(), seq, positions)

    def runs_among(self, seq: int, positions: range) -> Iterator[RunRecord]:
        """The same for iterations that follow one another."""
        return reading.runs_among(self._current(), seq, positions)

    def iteration_states(self, seq: int) -> Iterator[tuple[int, State]]:
        """Of each iteration of a job that has begun or ended: its position and its state."""
        return reading.iteration_states(self._current(), seq)

    def interrupted(self) -> Iterator[tuple[int, int]]:
        """Number and position of what is not final, and has had runs that count no more."""
        return reading.interrupted(self._current())

    def command_of(self, seq: int, position: int) -> str | None:
        """What the latest run was started with, where that is known."""
        return reading.command_of(self._current(), seq, position)

    def metadata(self, key: MetadataKey[T]) -> T:
        return key.read(self._current())

    def _current(self) -> sqlite3.Connection:
        """The connection, with all that is known written to it."""
        return self._connection
