"""The registry of a run as the value from which a core is restored."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain

from qcg.pilotjob.core.job_states import STATES, State
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.core.restore import (
    EndedIteration,
    EndedIterations,
    FinalJob,
    HeldPosition,
    OpenAttempt,
    PastAttempts,
    RequeuedAttempt,
    SavedRun,
    UnfinishedJob,
)
from qcg.pilotjob.host.records import EndReason
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.descriptions import decode_description, iteration_of
from qcg.pilotjob.journal.encoding import decode_grant
from qcg.pilotjob.journal.metadata import DRAINED_NODES
from qcg.pilotjob.journal.queries import ATTEMPT_COLUMNS, OF_UNFINISHED, QUEUED, to_attempt, to_rest
from qcg.pilotjob.journal.schema import FINAL, seq_and_position


def load(connection: sqlite3.Connection) -> SavedRun:
    """Read a whole registry.

    Jobs and iterations are read from disk while the value is iterated over: use it before the next write. A description
    that no manager has written raises DamagedDescription then.
    """
    return SavedRun(
        max_seq=queries.max_seq(connection),
        final=_final_jobs(connection),
        unfinished=unfinished_jobs(connection),
        ended_iterations=_ended_iterations(connection),
        requeued=[
            RequeuedAttempt(*seq_and_position(place), number)
            for place, number in connection.execute(f"SELECT place, attempt {OF_UNFINISHED} AND runs.state = {QUEUED}")
        ],
        open_attempts=_open_attempts(connection),
        past=_past_attempts(connection),
        held=[HeldPosition(*hold) for hold in queries.holds(connection)],
        begun=_begun(connection),
        drained=DRAINED_NODES.read(connection) or {},
    )


def unfinished_jobs(connection: sqlite3.Connection) -> Iterator[UnfinishedJob]:
    """The jobs that are not final, in the order of submission."""
    for seq, name, submitted, spec, started, rest, iterations in connection.execute(
        f"SELECT seq, name, submitted, spec, started, rest, iterations FROM jobs WHERE state < {FINAL} ORDER BY seq"
    ):
        description = decode_description(spec, seq, name)
        if iterations:
            iteration_of(description, seq, name, iterations)
        yield UnfinishedJob(seq, name, submitted, spec, description, started or 0.0, to_rest(rest))


def _final_jobs(connection: sqlite3.Connection) -> Iterator[FinalJob]:
    for seq, name, state, submitted, iterations, message, rest in connection.execute(
        f"SELECT seq, name, state, submitted, iterations, message, rest FROM jobs WHERE state >= {FINAL} ORDER BY seq"
    ):
        job = FinalJob(seq, name, STATES[state], submitted, message)
        yield job._replace(iterations=_iterations_of(connection, job, iterations, rest)) if iterations else job


def _iterations_of(connection: sqlite3.Connection, job: FinalJob, iterations: int, rest: int) -> EndedIterations:
    spec = queries.spec_of(connection, job.seq)
    assert spec is not None
    indices = iteration_of(decode_description(spec, job.seq, job.name), job.seq, job.name, iterations).indices()
    if job.state is State.SUCCEED:  # all of them have succeeded
        return EndedIterations(indices, State.SUCCEED)
    return EndedIterations(indices, to_rest(rest) or job.state, queries.iteration_states(connection, job.seq))


def _ended_iterations(connection: sqlite3.Connection) -> Iterator[EndedIteration]:
    for place, state in connection.execute(
        f"SELECT place, runs.state {OF_UNFINISHED} AND iterations > 0 AND runs.state >= {FINAL}"
    ):
        yield EndedIteration(*seq_and_position(place), STATES[state])


def _past_attempts(connection: sqlite3.Connection) -> list[PastAttempts]:
    """The earlier attempts of jobs that are not final."""
    found: dict[int, PastAttempts] = {}
    unfinished = f"JOIN jobs ON seq = place >> 32 AND state < {FINAL} ORDER BY place, attempt"
    columns = "place, cause, counted, next_at, granted, rerun_at"
    for place, cause, counted, next_at, granted, rerun_at in queries.past_rows(connection, unfinished, columns):
        past = found.get(place) or PastAttempts(*seq_and_position(place), 0, {})
        retries = {**past.retries, cause: past.retries.get(cause, 0) + 1} if counted else past.retries
        past = past._replace(attempts=past.attempts + 1, retries=retries, next_at=next_at)
        if rerun_at:  # a rerun begins anew, on any node
            past = past._replace(failed_node="", unstartable=False)
        elif cause != EndReason.CLOSED:
            parts = () if granted is None else decode_grant(granted).parts
            past = past._replace(
                failed_node=parts[0].node if len(parts) == 1 and cause != EndReason.LOST else "",
                unstartable=past.unstartable or cause == EndReason.UNSTARTABLE,
            )
        found[place] = past
    return list(found.values())


def _begun(connection: sqlite3.Connection) -> Iterator[tuple[int, int]]:
    """Attempts that had begun to run and did not succeed."""
    unsuccessful = f"SELECT place FROM runs WHERE started > 0 AND state > {int(State.SUCCEED)}"
    for (place,) in chain(
        connection.execute(unsuccessful), queries.past_rows(connection, "WHERE started > 0", "DISTINCT place")
    ):
        yield seq_and_position(place)


def _open_attempts(connection: sqlite3.Connection) -> list[OpenAttempt]:
    rows = connection.execute(
        f"SELECT {ATTEMPT_COLUMNS} {OF_UNFINISHED} AND runs.state > {QUEUED} AND runs.state < {FINAL}"
    )
    return [
        OpenAttempt(
            record.seq,
            record.position,
            record.attempt,
            record.grant or Grant(()),
            record.scheduled or 0.0,
            record.started or 0.0,
            record.pid,
            record.kill_requested,
            record.stop_requested,
        )
        for record in map(to_attempt, rows)
    ]
