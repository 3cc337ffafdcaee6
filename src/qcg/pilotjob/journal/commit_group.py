"""The changes gathered between two commits of the registry, and the SQL that writes them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any

from qcg.pilotjob.core.effects import (
    Added,
    Effect,
    Held,
    IterationsFinal,
    Kill,
    QueuedIterationsFinal,
    Redescribed,
    Released,
    Removed,
    Requeued,
    Reran,
    Stop,
    Transition,
)
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.journal.encoding import ENDS_IN_BATCH, encode_ends, encode_grant
from qcg.pilotjob.journal.metadata import HIGHEST_REMOVED_SEQ, PUT_VALUE, StoredValue
from qcg.pilotjob.journal.schema import FINAL, KILLED, STOPPED, TOGETHER, USAGE, place

Row = tuple[Any, ...]

# Plain numbers: SQLite takes a subclass of int only through its adapters, which is slow.
QUEUED, SCHEDULED, EXECUTING = int(State.QUEUED), int(State.SCHEDULED), int(State.EXECUTING)

INSERT_JOB = "INSERT INTO submitted_jobs (seq, name, submitted, iterations, spec) VALUES (?, ?, ?, ?, ?)"
START_JOB = "UPDATE submitted_jobs SET state = ?, started = ? WHERE seq = ?"
# A job without a message of its own keeps the message of its queued iterations that became final together.
END_JOB = "UPDATE submitted_jobs SET state = ?, ended = ?, message = coalesce(nullif(?, ''), message) WHERE seq = ?"
END_QUEUED_ITERATIONS = "UPDATE submitted_jobs SET rest = ?, rest_at = ?, message = ? WHERE seq = ?"
_USAGE = ", ".join(USAGE)
_NO_USAGE = ", ".join(f"{name} = 0" for name in USAGE)
NOT_COUNTED = (0,) * len(USAGE)
# Without usage while it is unknown: each value of a row takes time to bind.
PUT_UNMEASURED_ATTEMPT = """
    INSERT OR REPLACE INTO runs
    (place, attempt, state, scheduled, started, ended, pid, exit_code, granted, killed, message)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
PUT_ATTEMPT = f"""
    INSERT OR REPLACE INTO runs
    (place, attempt, state, scheduled, started, ended, pid, exit_code, granted, killed, message, {_USAGE})
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
PUT_PAST_ATTEMPT = f"""
    INSERT INTO past_attempts
    (place, attempt, cause, counted, next_at, scheduled, started, ended, pid, exit_code, granted, message, {_USAGE})
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
# The number of an attempt that was queued again stays: it must not be used again when the iteration is run again.
_KEEP_NUMBER = f"""ON CONFLICT (place) DO UPDATE SET
    state = excluded.state, ended = excluded.ended, message = excluded.message, killed = excluded.killed,
    scheduled = 0, started = 0, pid = 0, exit_code = NULL, granted = NULL, {_NO_USAGE}"""
PUT_ENDED_ITERATION = f"""
    INSERT INTO runs (place, attempt, state, ended, message) VALUES (?, 0, ?, ?, ?) {_KEEP_NUMBER}"""
PUT_ITERATION_OF_MANY = f"""
    INSERT INTO runs (place, attempt, state, ended, message, killed) VALUES (?, 0, ?, ?, ?, {TOGETHER})
    {_KEEP_NUMBER}"""
# Run again: the last attempt joins the earlier ones, and only its number stays in its row. Iterations that stay as they
# are get a row with the state of the rest, which is dropped with the end of the job, unless their row has a state. The
# row of an iteration that was queued again, and became final with the rest, has only its number.
KEEP_LAST_ATTEMPT = f"""
    INSERT INTO past_attempts
    (place, attempt, cause, counted, next_at, scheduled, started, ended, pid, exit_code, granted, message, {_USAGE},
    rerun_at)
    SELECT place, attempt, CASE WHEN state = {int(State.CANCELED)} THEN 'cancel' WHEN exit_code > 0 THEN 'exit' ELSE
    'failed' END, 0, 0, scheduled, started, ended, pid, exit_code, granted, message, {_USAGE}, ?
    FROM runs WHERE place = ? AND state >= {FINAL} AND granted IS NOT NULL"""
FORGET_RETRIES = "UPDATE past_attempts SET counted = 0, next_at = 0 WHERE place = ?"
DROP_UNSTARTED = "DELETE FROM runs WHERE place = ? AND attempt = 0"
KEEP_NUMBER = f"""
    UPDATE runs SET state = {QUEUED}, scheduled = 0, started = 0, ended = 0, pid = 0, exit_code = NULL, granted = NULL,
    killed = 0, message = '', {_NO_USAGE} WHERE place = ?"""
KEEP_REST = f"""
    INSERT INTO runs (place, attempt, state, ended, message, killed)
    SELECT one.value, 0, rest, rest_at, message, {TOGETHER} FROM submitted_jobs CROSS JOIN json_each(?) AS one
    WHERE seq = ? AND rest > 0 {_KEEP_NUMBER} WHERE runs.state = {QUEUED}"""
REVIVE_JOB = f"""
    UPDATE submitted_jobs SET state = {QUEUED}, started = 0, ended = 0, message = '', rest = 0, rest_at = 0
    WHERE seq = ?"""
DROP_REST = "UPDATE submitted_jobs SET rest = 0, rest_at = 0, message = '' WHERE seq = ?"
REPLACE_SPEC = "UPDATE submitted_jobs SET spec = ? WHERE seq = ?"
PUT_COMMAND = "INSERT OR REPLACE INTO commands (place, command) VALUES (?, ?)"
PUT_HOLD = "INSERT OR REPLACE INTO holds (place, since) VALUES (?, ?)"
DELETE_HOLDS = "DELETE FROM holds WHERE place >= ? AND place < ?"
PUT_ENDS = "INSERT INTO ends (last, batch) SELECT coalesce(max(last), 0) + ?, ? FROM ends"
PUT_ACKED = "INSERT OR REPLACE INTO agents (name, acked) VALUES (?, ?)"
RAISE_MAX_SEQ = f"""
    INSERT INTO meta (key, value) VALUES ('{HIGHEST_REMOVED_SEQ.name}', ?)
    ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)"""


class CommitGroup:
    """Changes that are committed together. An attempt that changes several times costs one row: the last one."""

    __slots__ = (
        "acked",
        "added",
        "attempts",
        "commands",
        "empty",
        "ended_iterations",
        "ended_jobs",
        "ended_together",
        "ends",
        "holds",
        "meta",
        "past",
        "queued_ended",
        "redescribed",
        "removed",
        "reran",
        "started_jobs",
    )

    def __init__(self) -> None:
        self.empty = True
        self.added: dict[int, Row] = {}
        self.started_jobs: list[Row] = []
        self.ended_jobs: list[Row] = []
        self.ends: dict[int, Row] = {}
        """Names and states of jobs that became final, by sequence number, in the order of their ends."""
        self.queued_ended: list[Row] = []
        """Jobs whose queued iterations became final together."""
        self.attempts: dict[Attempt, Transition | Requeued | None] = {}
        """The end of each attempt; None while it has not ended."""
        self.ended_iterations: list[Row] = []
        """Iterations that became final without an attempt."""
        self.ended_together: list[IterationsFinal] = []
        self.reran: list[tuple[Reran, bytes | None]] = []
        """Jobs that are run again, each with its new description or None; written before all other changes."""
        self.past: list[Row] = []
        """Attempts that are over, and whose jobs were queued again."""
        self.holds: list[Held | Released] = []
        self.redescribed: dict[int, bytearray] = {}
        """New descriptions of jobs, by sequence number."""
        self.commands: list[Row] = []
        self.removed: list[Row] = []
        self.meta: dict[str, StoredValue] = {}
        self.acked: dict[str, int] = {}

    def transition(self, effect: Transition) -> None:
        self.empty = False
        attempt = effect.attempt
        if not effect.state.is_final:
            if attempt is not None:
                self.attempts[attempt] = None
            elif effect.position < 0 and effect.state is State.EXECUTING:
                self.started_jobs.append((EXECUTING, effect.at, effect.job.seq))
            return
        if effect.position < 0:
            self.ends[effect.job.seq] = (effect.job.name, int(effect.state))
        if attempt is not None:
            self.attempts[attempt] = effect
        elif effect.position >= 0:
            self.ended_iterations.append(
                (place(effect.job.seq, effect.position), int(effect.state), effect.at, effect.message)
            )
        else:
            self.ended_jobs.append((int(effect.state), effect.at, effect.message, effect.job.seq))

    def add(self, effect: Added) -> None:
        self.empty = False
        for job in effect.jobs:
            seq, iterations = job.seq, 0 if job.iterations is None else len(job.iterations)
            assert job.spec is not None
            self.added[seq] = (seq, job.name, job.submitted, iterations, bytearray(job.spec))

    def withdraw(self, seq: int) -> None:
        """Drop a job that was added in this group."""
        self.added.pop(seq, None)

    def end_queued_iterations(self, effect: QueuedIterationsFinal) -> None:
        self.empty = False
        self.queued_ended.append((int(effect.state), effect.at, effect.job.message, effect.job.seq))

    def end_iterations(self, effect: IterationsFinal) -> None:
        self.empty = False
        self.ended_together.append(effect)

    def kill(self, effect: Kill | Stop) -> None:
        self.empty = False
        self.attempts.setdefault(effect.attempt, None)

    def set_command(self, attempt: Attempt, command: str) -> None:
        self.empty = False
        self.commands.append((place(attempt.job.seq, attempt.position), command))

    def requeue(self, effect: Requeued) -> None:
        self.empty = False
        attempt, past = effect.attempt, effect.past
        self.attempts[attempt] = effect
        if past is not None:
            self.past.append(
                (
                    place(attempt.job.seq, attempt.position),
                    attempt.number,
                    past.cause,
                    int(past.counted),
                    past.next_at,
                    attempt.scheduled,
                    attempt.started,
                    past.at,
                    attempt.pid,
                    past.exit_code,
                    encode_grant(attempt.grant),
                    past.message,
                    *(attempt.usage or NOT_COUNTED),
                )
            )

    def rerun(self, effect: Reran) -> None:
        self.empty = False
        self.reran.append((effect, effect.job.spec if effect.replaced else None))

    def set_hold(self, effect: Held | Released) -> None:
        self.empty = False
        self.holds.append(effect)

    def redescribe(self, effect: Redescribed) -> None:
        self.empty = False
        assert effect.job.spec is not None
        self.redescribed[effect.job.seq] = bytearray(effect.job.spec)

    def remove(self, effect: Removed) -> None:
        self.empty = False
        self.removed.append((effect.job.seq,))

    def write(self, connection: sqlite3.Connection) -> None:
        """Write all changes. Removals come last, and delete all rows of their jobs: sequence numbers are not reused."""
        many = connection.executemany
        for effect, spec in self.reran:
            _write_rerun(connection, effect, spec)
        many(INSERT_JOB, self.added.values())
        many(START_JOB, self.started_jobs)
        many(END_JOB, self.ended_jobs)
        many(END_QUEUED_ITERATIONS, self.queued_ended)
        many(PUT_ENDS, self._end_batches())
        unmeasured, measured = self._attempt_rows()
        many(PUT_UNMEASURED_ATTEMPT, unmeasured)
        many(PUT_ATTEMPT, measured)
        many(PUT_ENDED_ITERATION, self.ended_iterations)
        many(PUT_ITERATION_OF_MANY, self._rows_of_ended_together())
        many(PUT_PAST_ATTEMPT, self.past)
        many(PUT_COMMAND, self.commands)
        many(REPLACE_SPEC, [(spec, seq) for seq, spec in self.redescribed.items()])
        for hold in self.holds:
            self._write_hold(connection, hold)
        if self.removed:
            many("DELETE FROM submitted_jobs WHERE seq = ?", self.removed)
            places = [(place(seq, -1), place(seq + 1, -1)) for (seq,) in self.removed]
            many("DELETE FROM runs WHERE place >= ? AND place < ?", places)
            many("DELETE FROM commands WHERE place >= ? AND place < ?", places)
            many("DELETE FROM past_attempts WHERE place >= ? AND place < ?", places)
            many(DELETE_HOLDS, places)
            many(RAISE_MAX_SEQ, [max(self.removed)])
        many(PUT_VALUE, self.meta.items())
        many(PUT_ACKED, self.acked.items())

    def _write_hold(self, connection: sqlite3.Connection, effect: Held | Released) -> None:
        seq, position = effect.job.seq, effect.position
        if position < 0:  # which replaces the holds of its iterations
            connection.execute(DELETE_HOLDS, (place(seq, -1), place(seq + 1, -1)))
        if isinstance(effect, Held):
            connection.execute(PUT_HOLD, (place(seq, position), effect.since))
        elif effect.within:
            connection.execute(PUT_HOLD, (place(seq, position), 0.0))
        elif position >= 0:
            connection.execute(DELETE_HOLDS, (place(seq, position), place(seq, position + 1)))

    def _end_batches(self) -> Iterator[Row]:
        """Rows of many ends each: a row for each end would add a tenth to the cost of a job."""
        ends = list(self.ends.values())
        for first in range(0, len(ends), ENDS_IN_BATCH):
            batch = ends[first : first + ENDS_IN_BATCH]
            yield len(batch), bytearray(encode_ends(batch))

    def _rows_of_ended_together(self) -> Iterator[Row]:
        for effect in self.ended_together:
            first, state, at, message = place(effect.job.seq, 0), int(effect.state), effect.at, effect.message
            for position in compress(range(len(effect.bitmap)), effect.bitmap):
                yield first + position, state, at, message

    def _attempt_rows(self) -> tuple[list[Row], list[Row]]:
        """Rows of attempts without and with resource usage, to be written in this order: of two attempts of one
        job, the first one was queued again, and its usage is in the row of the past attempt."""
        unmeasured: list[Row] = []
        measured: list[Row] = []
        for attempt, end in self.attempts.items():
            state, ended, exit_code, message = QUEUED, 0.0, None, ""
            if end is None:
                state, exit_code = (EXECUTING if attempt.started else SCHEDULED), 0
            elif type(end) is Transition:
                state, ended, exit_code, message = int(end.state), end.at, end.exit_code, end.message
            row = (
                attempt.job.seq << 32 | attempt.position + 1,  # place(), inlined because this runs for every attempt
                attempt.number,
                state,
                attempt.scheduled,
                attempt.started,
                ended,
                attempt.pid,
                exit_code,
                bytearray(encode_grant(attempt.grant)),
                KILLED if attempt.kill_requested else STOPPED if attempt.stop_requested else 0,
                message,
            )
            if attempt.usage is None or state == QUEUED:
                unmeasured.append(row)
            else:
                measured.append(row + attempt.usage)
        return unmeasured, measured


def _write_rerun(connection: sqlite3.Connection, effect: Reran, spec: bytes | None) -> None:
    seq = effect.job.seq
    places = [(place(seq, position),) for position in effect.positions]
    connection.executemany(KEEP_LAST_ATTEMPT, [(effect.at, number) for (number,) in places])
    for statement in (FORGET_RETRIES, DROP_UNSTARTED, KEEP_NUMBER):
        connection.executemany(statement, places)
    if effect.left:
        connection.execute(KEEP_REST, (json.dumps([place(seq, position) for position in effect.left]), seq))
    connection.execute(REVIVE_JOB if effect.was_final else DROP_REST, (seq,))
    if spec is not None:
        connection.execute(REPLACE_SPEC, (spec, seq))


GATHER: dict[type[Effect], Callable[[CommitGroup, Any], None]] = {
    Added: CommitGroup.add,
    Transition: CommitGroup.transition,
    QueuedIterationsFinal: CommitGroup.end_queued_iterations,
    IterationsFinal: CommitGroup.end_iterations,
    Kill: CommitGroup.kill,
    Stop: CommitGroup.kill,
    Requeued: CommitGroup.requeue,
    Reran: CommitGroup.rerun,
    Held: CommitGroup.set_hold,
    Released: CommitGroup.set_hold,
    Redescribed: CommitGroup.redescribe,
    Removed: CommitGroup.remove,
}
"""How each effect that changes the registry is gathered."""
