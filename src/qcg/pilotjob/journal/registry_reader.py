"""Read-only access to a registry, for its manager and for snapshots."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.metadata import MetadataKey, T
from qcg.pilotjob.journal.records import AttemptRecord, JobRecord, PastAttemptRecord


class RegistryReader:
    """Queries on a connection: to a snapshot, or the connection of the manager."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def job_records(self) -> Iterator[JobRecord]:
        return queries.job_records(self._current())

    def job_record(self, seq: int) -> JobRecord | None:
        return queries.job_record(self._current(), seq)

    def spec_of(self, seq: int) -> bytes | None:
        """The encoded description of a job."""
        return queries.spec_of(self._current(), seq)

    def specs_of(self, seqs: Collection[int], containing: bytes = b"") -> Iterator[tuple[int, bytes]]:
        """Job number and encoded description of each of these jobs whose description contains certain bytes."""
        return queries.specs_of(self._current(), seqs, containing)

    def attempt_records(self) -> Iterator[AttemptRecord]:
        """The attempts of all jobs, in the order of submission."""
        return queries.attempt_records(self._current())

    def attempts_of(self, seq: int, positions: Iterable[int] | None = None) -> Iterator[AttemptRecord]:
        """The latest attempts of a job, or of some of its iterations; a job without iterations has position -1."""
        return queries.attempts_of(self._current(), seq, positions)

    def attempts_among(self, seq: int, positions: range) -> Iterator[AttemptRecord]:
        """The latest attempts of consecutive iterations."""
        return queries.attempts_among(self._current(), seq, positions)

    def iteration_states(self, seq: int) -> Iterator[tuple[int, State]]:
        """Position and state of each iteration of a job that has started or ended."""
        return queries.iteration_states(self._current(), seq)

    def interrupted(self) -> Iterator[tuple[int, int]]:
        """Sequence number and position of unfinished jobs and iterations that had started, and were queued again."""
        return queries.interrupted(self._current())

    def command_of(self, seq: int, position: int) -> str | None:
        """The command line of the latest attempt, where it is stored."""
        return queries.command_of(self._current(), seq, position)

    def holds(self) -> Iterator[tuple[int, int, float]]:
        """Job number, position and time of the holds of jobs that are not final, whole jobs first."""
        return queries.holds(self._current())

    def metadata(self, key: MetadataKey[T]) -> T:
        return key.read(self._current())

    def connection(self) -> sqlite3.Connection:
        """The connection for queries of other modules, with all changes so far. Only for reading."""
        return self._current()

    def _current(self) -> sqlite3.Connection:
        """The connection, with all gathered changes written to it."""
        return self._connection

    def past_attempts_of(self, seq: int, position: int) -> list[PastAttemptRecord]:
        """The earlier attempts of a job or iteration that was queued again, in order."""
        return queries.past_attempts_of(self._current(), seq, position)

    def past_attempts_among(self, seq: int, positions: range) -> Iterator[PastAttemptRecord]:
        """The earlier attempts of consecutive iterations, in order."""
        return queries.past_attempts_among(self._current(), seq, positions)

    def attempts_so_far(self, seqs: Collection[int]) -> dict[int, dict[int, tuple[int, int]]]:
        """By job number and position without success, the last attempt number, and the number of attempts that were
        started."""
        return queries.attempts_so_far(self._current(), seqs)

    def held_since(self, seqs: Collection[int]) -> dict[int, float]:
        """By job number, since when a job is held as a whole, or was held until it was omitted."""
        return queries.held_since(self._current(), seqs)
