"""The summary of a run without a manager, from its registry."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from qcg.pilotjob.core.job_states import State, counts_by_name
from qcg.pilotjob.core.records import DrainedNode
from qcg.pilotjob.core.waiting_reasons import waits_for_others
from qcg.pilotjob.core.why_left import why_left
from qcg.pilotjob.journal import aggregates, queries
from qcg.pilotjob.journal.held_jobs import HeldJobs
from qcg.pilotjob.journal.metadata import DRAINED_NODES, RESOURCES, DamagedMetadata, MetadataKey, NodeSize, T
from qcg.pilotjob.journal.records import JobRecord
from qcg.pilotjob.report.failure_groups import FailureGroup, FailureGroups
from qcg.pilotjob.report.formats import to_second
from qcg.pilotjob.report.recorded_failures import RecordedFailures
from qcg.pilotjob.report.recorded_history import RecordedHistory
from qcg.pilotjob.report.run_summary import MOST_GROUPS, MOST_NODES, Group, NodeSummary, RunSummary
from qcg.pilotjob.report.summary import Outcome, count_states
from qcg.pilotjob.runs.rundir import PREFIX

LEFT = "it had not ended when its manager ended; a manager that resumes the run continues with it"


def recorded_summary(connection: sqlite3.Connection, run_dir: Path) -> RunSummary:
    """The summary of a run from its registry: `connection` is a snapshot of it."""
    directory = run_dir.absolute()
    counts = count_states(connection, at_work=False)
    first, last = aggregates.first_and_last(connection) or (None, None)
    sizes = _metadata(connection, RESOURCES) or []
    cores = sum([node.cores for node in sizes])
    past = RecordedHistory(connection, last or 0.0, cores)
    for _ in past.steps():
        pass
    drained = _metadata(connection, DRAINED_NODES)
    nodes = list(_nodes(sizes, drained or {}))
    is_over = first is not None and not any(counts.jobs[state] for state in State if not state.is_final)
    return RunSummary(
        run=directory.name.removeprefix(PREFIX),
        directory=str(directory),
        at=time.time(),
        alive=False,
        host="",
        started=first,
        ended=last if is_over else None,
        jobs=counts_by_name(counts.jobs),
        iterations=counts_by_name(counts.iterations),
        units=counts_by_name(counts.units),
        cores=cores,
        used=0,
        gpus=0,
        gpus_used=0,
        running=counts.units[State.EXECUTING],
        nodes=tuple(nodes[:MOST_NODES]),
        more_nodes=max(len(nodes) - MOST_NODES, 0),
        rates=None,
        estimate=None,
        waiting=tuple(_waiting(connection, counts.units)),
        failed=tuple(_failed(connection, run_dir, past.failures)),
        history=None if past.bins is None else past.bins.history(),
        notices=tuple([f"node {node.name} is drained: {node.reason}" for node in nodes if node.state == "drained"]),
    )


def _metadata(connection: sqlite3.Connection, key: MetadataKey[T]) -> T:
    try:
        return key.read(connection)
    except DamagedMetadata:
        return key.default


def _nodes(sizes: list[NodeSize], drained: dict[str, DrainedNode]) -> Iterator[NodeSummary]:
    """The nodes of the last manager, drained ones first."""
    for node in sorted(sizes, key=lambda node: node.name not in drained):
        if (how := drained.get(node.name)) is not None:
            yield NodeSummary(node.name, node.cores, 0, state="drained", since=how.since, reason=how.reason)
        else:
            yield NodeSummary(node.name, node.cores, 0)


def _waiting(connection: sqlite3.Connection, units: Counter[State]) -> Iterator[Group]:
    number = sum([units[state] for state in State if not state.is_final])
    if not number:
        return
    held = list(queries.holds(connection))
    seqs = {seq for seq, _, _ in held}
    free = [job for job in aggregates.jobs_in(connection, State.QUEUED, len(seqs) + 1) if job.seq not in seqs]
    held_units = min(sum([_held(connection, seq, position) for seq, position, since in held if since]), number)
    if number > held_units:
        yield _group_left(connection, number - held_units, free[0] if free else None)
    if held_units:
        seq, _, since = held[0]
        record = queries.job_record(connection, seq)
        reason = why_left(None, held_since=to_second(since))
        yield Group(held_units, reason.kind, reason.sentence, record.name if record else "")


def _group_left(connection: sqlite3.Connection, number: int, example: JobRecord | None) -> Group:
    """The group of jobs and iterations that are not held. `example`: a job of the group."""
    if example is None:
        return Group(number, "left", LEFT, "")
    held = HeldJobs(connection)
    prerequisite = held.prerequisite_of(example.seq) if held.are_all_left() else None
    if prerequisite is None:
        return Group(number, "left", LEFT, example.name)
    reason = why_left(None, prerequisite=prerequisite)
    return Group(number, reason.kind, waits_for_others(number, reason.sentence), example.name)


def _held(connection: sqlite3.Connection, seq: int, position: int) -> int:
    """The number of iterations, or jobs without iterations, that a hold affects."""
    if position >= 0:
        return 1
    record = queries.job_record(connection, seq)
    if record is None or not record.iterations:
        return 1
    return max(record.iterations - aggregates.iteration_states(connection, seq).total(), 0)


def _failed(connection: sqlite3.Connection, run_dir: Path, failures: FailureGroups) -> Iterator[Group]:
    if failures:
        recorded = RecordedFailures(run_dir, connection)
        yield from [_group(connection, recorded, group) for group in failures.largest(MOST_GROUPS)]


def _group(connection: sqlite3.Connection, recorded: RecordedFailures, group: FailureGroup) -> Group:
    seq, position = group.example
    job = queries.job_record(connection, seq)
    if job is None:
        return Group(group.number, group.reason, group.message, "")
    attempt = next(queries.attempts_of(connection, seq, [position]), None)
    failure = recorded.of(Outcome(job, attempt))
    return Group(group.number, group.reason, group.message, failure.name, tuple(failure.last_lines))
