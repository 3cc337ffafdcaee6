"""Held jobs of a registry, and the jobs that cannot start before they are released."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from functools import cached_property

import msgspec
from msgspec import Struct

from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.why_left import HeldPrerequisite
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.descriptions import DamagedDescription, decode_description, iteration_of
from qcg.pilotjob.journal.schema import FINAL, place


class _Prerequisites(Struct, frozen=True, gc=False):
    """The part of a description that names other jobs."""

    after: tuple[str, ...] = ()
    outcomes: tuple[tuple[str, str], ...] = ()


_decode = msgspec.msgpack.Decoder(_Prerequisites).decode


class HeldJobs:
    """The holds of one snapshot of a registry."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._holds: dict[int, dict[int, float]] = defaultdict(dict)
        for seq, position, since in queries.holds(connection):
            self._holds[seq][position] = since

    def are_all_left(self) -> bool:
        """Whether only held jobs, and jobs that wait for them, are left: no job starts before a release."""
        if not self._holds or any(self._is_free(seq) for seq in self._unfinished.values()):
            return False  # the usual answer, without a look at all jobs
        return len(self._blocked) == len(self._unfinished)

    def prerequisite_of(self, seq: int) -> HeldPrerequisite | None:
        """The first prerequisite of a job that is held, or waits for a held job."""
        if not self._holds:
            return None
        for entry in self._prerequisites(seq):
            name, _, suffix = entry.partition(":")
            other = self._unfinished.get(name)
            if other is None:
                continue
            position = self._position(other, name, suffix)
            if self._is_final(other, position):
                continue
            shown = name if position is None else entry
            if self._is_held(other, -1 if position is None else position):
                return HeldPrerequisite(shown, is_held=True)
            if name in self._blocked:
                return HeldPrerequisite(shown, is_held=other in self._holds)
        return None

    @cached_property
    def _unfinished(self) -> dict[str, int]:
        return dict(self._connection.execute(f"SELECT name, seq FROM jobs WHERE state < {FINAL}"))

    @cached_property
    def _blocked(self) -> set[str]:
        """The names of held jobs, of which no iteration is left that may start, and of all jobs that wait for them."""
        behind = defaultdict(list)
        found = []
        for name, seq in self._unfinished.items():
            if seq in self._holds and self._is_blocked_by_holds(seq):
                found.append(name)
                continue
            for entry in self._prerequisites(seq):
                other, _, suffix = entry.partition(":")
                if other in self._unfinished:
                    position = self._position(self._unfinished[other], other, suffix)
                    if not self._is_final(self._unfinished[other], position):
                        behind[other].append(name)
        blocked = set(found)
        for name in found:  # grows
            new = [one for one in behind[name] if one not in blocked]
            blocked.update(new)
            found += new
        return blocked

    def _is_free(self, seq: int) -> bool:
        """Whether a job has no holds, and waits for no job."""
        if seq in self._holds:
            return False
        return not any(entry.partition(":")[0] in self._unfinished for entry in self._prerequisites(seq))

    def _prerequisites(self, seq: int) -> list[str]:
        spec = queries.spec_of(self._connection, seq)
        try:
            named = _decode(spec or b"")
        except (msgspec.DecodeError, UnicodeDecodeError):  # damaged; its own messages say so
            return []
        return [*named.after, *(entry for _, entry in named.outcomes)]

    def _is_held(self, seq: int, position: int) -> bool:
        holds = self._holds.get(seq, {})
        return bool(holds.get(position, holds.get(-1, 0.0)))

    def _is_blocked_by_holds(self, seq: int) -> bool:
        """Whether all positions of a job that are left are held."""
        (iterations,) = self._connection.execute("SELECT iterations FROM jobs WHERE seq = ?", (seq,)).fetchone()
        if not iterations:
            return self._is_held(seq, -1)
        final = {position for position, state in queries.iteration_states(self._connection, seq) if state.is_final}
        if -1 in self._holds[seq]:
            return all(since or position in final for position, since in self._holds[seq].items())
        held = {position for position, since in self._holds[seq].items() if since}
        return len(final | held) == int(iterations)

    def _position(self, seq: int, name: str, suffix: str) -> int | None:
        """The position of the single iteration that a dependency names; None for a whole job and for `${it}`."""
        if not suffix or "$" in suffix:
            return None
        record, spec = queries.job_record(self._connection, seq), queries.spec_of(self._connection, seq)
        if record is None or spec is None or not record.iterations:
            return None
        try:
            iteration = iteration_of(decode_description(spec, seq, name), seq, name, record.iterations)
        except DamagedDescription:
            return None
        return Iterations(iteration.indices()).position_of(suffix)

    def _is_final(self, seq: int, position: int | None) -> bool:
        """Whether a single iteration of an unfinished job has ended."""
        if position is None:
            return False
        row = self._connection.execute("SELECT state FROM runs WHERE place = ?", (place(seq, position),)).fetchone()
        return row is not None and int(row[0]) >= FINAL
