"""The table of attempts: one record for each attempt of a run, read row by row from a registry."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator
from heapq import merge
from operator import attrgetter
from typing import Any, NamedTuple, Union

import msgspec
from msgspec import Struct

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.iteration import Iteration, RowError, RowSource
from qcg.pilotjob.description.model import WHOLE_GPU
from qcg.pilotjob.host.records import Usage
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.records import AttemptRecord, PastAttemptRecord
from qcg.pilotjob.report.attempt_columns import index_of, stored_iteration
from qcg.pilotjob.report.record import cpu_efficiency, memory_of


class AttemptRow(Struct, frozen=True, gc=False):
    """One attempt. Times are seconds since 1970; unknown values are None."""

    name: str
    """The name of the job, or `job:INDEX` for an iteration."""
    job: str
    iteration: int | None
    """The index of the iteration."""
    attempt: int
    """The number of the attempt."""
    state: str
    """State of the attempt. A repeated attempt is FAILED, or CANCELED if its job was cancelled or its manager ended."""
    cause: str
    """Why it was repeated: a cause of `retry.on`, or `cancel`, `closed`, `failed`; empty for the last attempt."""
    submitted: float
    scheduled: float | None
    started: float | None
    ended: float | None
    queue_seconds: float | None
    """From the submission, the rerun, or the end of the attempt before, until it was scheduled."""
    launch_seconds: float | None
    """Seconds from being scheduled to the start. Short jobs are sent to nodes ahead of time: this includes their wait
    for a core there."""
    run_seconds: float | None
    """From its start to its end."""
    nodes: str
    """Names of nodes, separated by commas."""
    cores: int
    """The number of its cores."""
    allocation: str
    """Nodes and cores: `n1[0:1],n2[0]`."""
    gpus: float
    """The number of its GPUs; may be a fraction."""
    exit_code: int | None
    cpu_seconds: float | None
    cpu_efficiency: float | None
    """CPU time divided by the time of its cores, from 0 to 1; None on several nodes."""
    max_memory: int | None
    """Peak memory in bytes."""
    requested_memory: int | None
    """Bytes of memory that the job requested on each node."""
    minor_faults: int | None
    major_faults: int | None
    read_bytes: int | None
    written_bytes: int | None
    message: str
    parameters: str
    """The parameters of an iteration as JSON; empty if it has only an index, or if the parameters cannot be read."""


USAGE = "cpu_seconds", "cpu_efficiency", "max_memory", "minor_faults", "major_faults", "read_bytes", "written_bytes"
"""Fields with the resource usage of an attempt."""
TIMES = ("submitted", "scheduled", "started", "ended")
"""Fields with a time."""


_Record = Union[AttemptRecord, PastAttemptRecord]


class _Job(NamedTuple):
    seq: int
    name: str
    submitted: float
    iteration: Iteration | None


def read_attempts(connection: sqlite3.Connection, rows: RowSource | None = None) -> Generator[AttemptRow, None, None]:
    """All attempts in the order of submission; attempts of one job or iteration in the order of their numbers. Rows are
    not kept in memory.

    `rows`: a reader of parameter files; without it, parameters from files are left out.
    """
    jobs = _jobs(connection)
    job = _Job(-1, "", 0.0, None)
    before: _Record | None = None
    both: list[Iterator[_Record]] = [_latest(connection), _earlier(connection)]
    for record in merge(*both, key=attrgetter("seq", "position", "attempt")):
        while job.seq < record.seq:
            job = next(jobs, _Job(record.seq, f"(removed job {record.seq})", 0.0, None))
        queued: float | None = job.submitted
        if isinstance(before, PastAttemptRecord) and (before.seq, before.position) == (record.seq, record.position):
            queued = before.queued_again
        yield _row(job, record, queued, rows)
        before = record


def _jobs(connection: sqlite3.Connection) -> Iterator[_Job]:
    query = "SELECT seq, name, submitted, CASE WHEN iterations > 0 THEN spec END FROM submitted_jobs ORDER BY seq"
    for seq, name, submitted, spec in connection.execute(query):
        yield _Job(seq, name, submitted, None if spec is None else stored_iteration(seq, name, spec))


def _latest(connection: sqlite3.Connection) -> Iterator[AttemptRecord]:
    return (one for one in queries.attempt_records(connection) if one.grant is not None)


def _earlier(connection: sqlite3.Connection) -> Iterator[PastAttemptRecord]:
    return map(queries.to_past_attempt, queries.past_rows(connection, "ORDER BY place, attempt"))


def _row(job: _Job, record: _Record, queued: float | None, rows: RowSource | None) -> AttemptRow:
    cause = "" if isinstance(record, AttemptRecord) else record.cause
    index = None if record.position < 0 else index_of(job.iteration, record.position)
    grant = record.grant or Grant(())
    seconds = _between(record.started, record.ended)
    requested = memory_of(grant)
    return AttemptRow(
        job.name if index is None else f"{job.name}:{index}",
        job.name,
        index,
        record.attempt,
        record.state.name,
        cause,
        job.submitted,
        record.scheduled,
        record.started,
        record.ended,
        _between(queued, record.scheduled),
        _between(record.scheduled, record.started),
        seconds,
        ",".join(part.node for part in grant.parts),
        grant.ncores,
        str(grant),
        gpus_of(grant),
        record.exit_code,
        **_usage(record.usage, cpu_efficiency(record.usage, grant, seconds)),
        requested_memory=requested or None,
        message=record.message,
        parameters="" if index is None else _parameters(job.iteration, index, rows, record.scheduled),
    )


def _between(first: float | None, last: float | None) -> float | None:
    """Seconds between two known times; at least 0, because clocks may be set back."""
    return max(last - first, 0.0) if first and last else None


def gpus_of(grant: Grant) -> float:
    gpus = sum(len(part.gpus) for part in grant.parts)
    share = grant.extra.gpu_share if grant.extra is not None else 0
    return gpus * share / WHOLE_GPU if share else float(gpus)


def _usage(usage: Usage | None, efficiency: float | None) -> dict[str, Any]:
    if usage is None:
        return dict.fromkeys(USAGE)
    return {
        "cpu_seconds": usage.cpu,
        "cpu_efficiency": efficiency,
        "max_memory": usage.memory << 10,
        "minor_faults": usage.minor_faults,
        "major_faults": usage.major_faults,
        "read_bytes": usage.read,
        "written_bytes": usage.written,
    }


def _parameters(iteration: Iteration | None, index: int, rows: RowSource | None, scheduled: float | None) -> str:
    """The parameters of the attempt that was scheduled at this time: the iteration may have another row by now."""
    if iteration is None or not iteration.has_values:
        return ""
    try:
        return msgspec.json.encode(iteration.value(index, rows, scheduled)).decode()
    except (RowError, IndexError):
        return ""
