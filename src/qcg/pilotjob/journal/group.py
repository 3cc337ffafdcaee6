"""The changes gathered between two commits, and how they are written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any

from qcg.pilotjob.core.effects import (
    Added,
    Effect,
    IterationsFinal,
    Kill,
    QueuedIterationsFinal,
    Removed,
    Requeued,
    Stop,
    Transition,
)
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.journal.end_batches import ENDS_IN_BATCH, encode_ends
from qcg.pilotjob.journal.grants import encode_grant
from qcg.pilotjob.journal.metadata import HIGHEST_REMOVED_SEQ, PUT_VALUE, StoredValue
from qcg.pilotjob.journal.schema import KILLED, STOPPED, TOGETHER, place

Row = tuple[Any, ...]

# Plain numbers: SQLite takes a subclass of int only through its adapters, which is slow.
QUEUED, SCHEDULED, EXECUTING = int(State.QUEUED), int(State.SCHEDULED), int(State.EXECUTING)

INSERT_JOB = "INSERT INTO submitted_jobs (seq, name, submitted, iterations, spec) VALUES (?, ?, ?, ?, ?)"
START_JOB = "UPDATE submitted_jobs SET state = ?, started = ? WHERE seq = ?"
# Without a message of its own, the words for those of its iterations that were settled together stay.
END_JOB = "UPDATE submitted_jobs SET state = ?, ended = ?, message = coalesce(nullif(?, ''), message) WHERE seq = ?"
SETTLE_REST = "UPDATE submitted_jobs SET rest = ?, rest_at = ?, message = ? WHERE seq = ?"
PUT_RUN = """
    INSERT OR REPLACE INTO runs
    (place, attempt, state, scheduled, started, ended, pid, exit_code, granted, killed, message)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
PUT_SETTLED = "INSERT OR REPLACE INTO runs (place, attempt, state, ended, message) VALUES (?, 0, ?, ?, ?)"
PUT_TOGETHER = (
    f"INSERT OR REPLACE INTO runs (place, attempt, state, ended, message, killed) VALUES (?, 0, ?, ?, ?, {TOGETHER})"
)
PUT_COMMAND = "INSERT OR REPLACE INTO commands (place, command) VALUES (?, ?)"
PUT_ENDS = "INSERT INTO ends (last, batch) SELECT coalesce(max(last), 0) + ?, ? FROM ends"
PUT_ACKED = "INSERT OR REPLACE INTO agents (name, acked) VALUES (?, ?)"
RAISE_MAX_SEQ = f"""
    INSERT INTO meta (key, value) VALUES ('{HIGHEST_REMOVED_SEQ.name}', ?)
    ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)"""


class Group:
    """A run that changes several times inside one group costs one row: only the last change is kept."""

    __slots__ = (
        "acked",
        "added",
        "commands",
        "empty",
        "ended_jobs",
        "ends",
        "meta",
        "removed",
        "rests",
        "runs",
        "settled",
        "settled_together",
        "started_jobs",
    )

    def __init__(self) -> None:
        self.empty = True
        self.added: dict[int, Row] = {}
        self.started_jobs: list[Row] = []
        self.ended_jobs: list[Row] = []
        self.ends: dict[int, Row] = {}
        """By sequence number, the names and states of jobs that became final, in the order of their ends."""
        self.rests: list[Row] = []
        self.runs: dict[Attempt, Transition | Requeued | None] = {}
        """By run, how it ended; `None` while it is under way."""
        self.settled: list[Row] = []
        """Iterations that became final without a run."""
        self.settled_together: list[IterationsFinal] = []
        self.commands: list[Row] = []
        self.removed: list[Row] = []
        self.meta: dict[str, StoredValue] = {}
        self.acked: dict[str, int] = {}

    def transition(self, effect: Transition) -> None:
        self.empty = False
        run = effect.attempt
        if not effect.state.is_final:
            if run is not None:
                self.runs[run] = None
            elif effect.position < 0 and effect.state is State.EXECUTING:
                self.started_jobs.append((EXECUTING, effect.at, effect.job.seq))
            return
        if effect.position < 0:
            self.ends[effect.job.seq] = (effect.job.name, int(effect.state))
        if run is not None:
            self.runs[run] = effect
        elif effect.position >= 0:
            self.settled.append((place(effect.job.seq, effect.position), int(effect.state), effect.at, effect.message))
        else:
            self.ended_jobs.append((int(effect.state), effect.at, effect.message, effect.job.seq))

    def add(self, effect: Added) -> None:
        self.empty = False
        for job in effect.jobs:
            seq, iterations = job.seq, 0 if job.iterations is None else len(job.iterations)
            assert job.spec is not None
            self.added[seq] = (seq, job.name, job.submitted, iterations, bytearray(job.spec))

    def take_back(self, seq: int) -> None:
        """This job was never added."""
        self.added.pop(seq, None)

    def settle_rest(self, effect: QueuedIterationsFinal) -> None:
        self.empty = False
        self.rests.append((int(effect.state), effect.at, effect.job.message, effect.job.seq))

    def settle_some(self, effect: IterationsFinal) -> None:
        self.empty = False
        self.settled_together.append(effect)

    def kill(self, effect: Kill | Stop) -> None:
        self.empty = False
        self.runs.setdefault(effect.attempt, None)

    def start_with(self, run: Attempt, command: str) -> None:
        self.empty = False
        self.commands.append((place(run.job.seq, run.position), command))

    def forget(self, effect: Requeued) -> None:
        self.empty = False
        self.runs[effect.attempt] = effect

    def remove(self, effect: Removed) -> None:
        self.empty = False
        self.removed.append((effect.job.seq,))

    def write(self, connection: sqlite3.Connection) -> None:
        """Removals come last: a sequence number is never given twice, so whatever else was gathered for it goes too."""
        many = connection.executemany
        many(INSERT_JOB, self.added.values())
        many(START_JOB, self.started_jobs)
        many(END_JOB, self.ended_jobs)
        many(SETTLE_REST, self.rests)
        many(PUT_ENDS, self._end_batches())
        many(PUT_RUN, self._run_rows())
        many(PUT_SETTLED, self.settled)
        many(PUT_TOGETHER, self._rows_of_settled_together())
        many(PUT_COMMAND, self.commands)
        if self.removed:
            many("DELETE FROM submitted_jobs WHERE seq = ?", self.removed)
            places = [(place(seq, -1), place(seq + 1, -1)) for (seq,) in self.removed]
            many("DELETE FROM runs WHERE place >= ? AND place < ?", places)
            many("DELETE FROM commands WHERE place >= ? AND place < ?", places)
            many(RAISE_MAX_SEQ, [max(self.removed)])
        many(PUT_VALUE, self.meta.items())
        many(PUT_ACKED, self.acked.items())

    def _end_batches(self) -> Iterator[Row]:
        """A row for many ends: one row for each would cost a tenth of everything else that is done for a job."""
        ends = list(self.ends.values())
        for first in range(0, len(ends), ENDS_IN_BATCH):
            batch = ends[first : first + ENDS_IN_BATCH]
            yield len(batch), bytearray(encode_ends(batch))

    def _rows_of_settled_together(self) -> Iterator[Row]:
        for effect in self.settled_together:
            first, state, at, message = place(effect.job.seq, 0), int(effect.state), effect.at, effect.message
            for position in compress(range(len(effect.bitmap)), effect.bitmap):
                yield first + position, state, at, message

    def _run_rows(self) -> Iterator[Row]:
        for run, end in self.runs.items():
            state, ended, exit_code, message = QUEUED, 0.0, None, ""
            if end is None:
                state, exit_code = (EXECUTING if run.started else SCHEDULED), 0
            elif type(end) is Transition:
                state, ended, exit_code, message = int(end.state), end.at, end.exit_code, end.message
            yield (
                run.job.seq << 32 | run.position + 1,  # its place, written out for what is done for every run
                run.number,
                state,
                run.scheduled,
                run.started,
                ended,
                run.pid,
                exit_code,
                bytearray(encode_grant(run.grant)),
                KILLED if run.killed else STOPPED if run.stopped else 0,
                message,
            )


GATHER: dict[type[Effect], Callable[[Group, Any], None]] = {
    Added: Group.add,
    QueuedIterationsFinal: Group.settle_rest,
    IterationsFinal: Group.settle_some,
    Kill: Group.kill,
    Stop: Group.kill,
    Requeued: Group.forget,
    Removed: Group.remove,
}
"""The effects that change something in the registry besides transitions, and how each is gathered."""
