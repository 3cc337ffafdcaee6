"""The summary of a run from its registry alone."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from pathlib import Path

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal import aggregates
from qcg.pilotjob.journal.encoding import decode_grant
from qcg.pilotjob.journal.metadata import RESOURCES, DamagedMetadata
from qcg.pilotjob.report.run_summary import MOST_BINS, MOST_GROUPS, MOST_NODES, Group, History, NodeSummary, RunSummary
from qcg.pilotjob.runs.rundir import PREFIX

_OPEN = f"{int(State.SCHEDULED)}, {int(State.EXECUTING)}"


def summary_of(connection: sqlite3.Connection, run_dir: Path, now: float, *, host: str = "", alive: bool) -> RunSummary:
    """The summary at a time, from aggregates over the tables."""
    single = aggregates.single_jobs(connection)
    iterated: Counter[State] = Counter()
    iterations: Counter[State] = Counter()
    for job in aggregates.iterated_jobs(connection):
        iterated[job.state] += 1
        rest = job.iterations - sum(job.states.values())
        iterations += job.states
        if rest > 0:
            iterations[job.rest or (job.state if job.state.is_final else State.QUEUED)] += rest
    span = aggregates.first_and_last(connection)
    nodes = _nodes(connection)
    units = single + iterations
    finished = not any(units[state] for state in State if not state.is_final)
    return RunSummary(
        run=run_dir.name.removeprefix(PREFIX),
        directory=str(run_dir.absolute()),
        at=now,
        alive=alive,
        host=host,
        started=None if span is None else span[0],
        ended=span[1] if span is not None and finished else None,
        jobs=_by_name(single + iterated),
        iterations=_by_name(iterations),
        units=_by_name(units),
        cores=sum(node.cores for node in nodes),
        used=sum(node.used for node in nodes),
        gpus=0,
        gpus_used=0,
        running=units[State.EXECUTING],
        nodes=tuple(nodes[:MOST_NODES]),
        more_nodes=max(len(nodes) - MOST_NODES, 0),
        rates=None,
        estimate=None,
        waiting=(),
        failed=_failures(connection),
        history=_history(connection, span, sum(node.cores for node in nodes), now if alive else None),
    )


def _by_name(counts: Counter[State]) -> dict[str, int]:
    return {state.name: counts[state] for state in State if counts[state]}


def _nodes(connection: sqlite3.Connection) -> list[NodeSummary]:
    try:
        sizes = RESOURCES.read(connection) or []
    except DamagedMetadata:
        sizes = []
    used: Counter[str] = Counter()
    for (granted,) in connection.execute(f"SELECT granted FROM runs WHERE state IN ({_OPEN}) AND granted IS NOT NULL"):
        for part in decode_grant(granted).parts:
            used[part.node] += len(part.cores)
    return [NodeSummary(size.name, size.cores, used[size.name]) for size in sizes]


def _failures(connection: sqlite3.Connection) -> tuple[Group, ...]:
    rows = connection.execute(
        "SELECT count(*) AS number, r.message, j.name, iterations, min(place) & 4294967295 FROM runs AS r"
        f" CROSS JOIN submitted_jobs AS j ON seq = place >> 32 WHERE r.state = {int(State.FAILED)}"
        " GROUP BY r.message ORDER BY number DESC LIMIT ?",
        (MOST_GROUPS,),
    )
    return tuple(
        Group(number, "failed", message or "no reason is known", f"{name}:{position - 1}" if iterations else name)
        for number, message, name, iterations, position in rows
    )


def _history(
    connection: sqlite3.Connection, span: tuple[float, float] | None, cores: int, now: float | None
) -> History | None:
    if span is None:
        return None
    first, last = span[0], max(span[1], now or 0.0)
    width = 1.0
    while (last - first) / width >= MOST_BINS:
        width *= 2
    bins = math.floor((last - first) / width) + 1
    values = {"first": first, "width": width}
    counts = {}
    for name, column, condition in (
        ("starts", "started", "started > 0"),
        ("ends", "ended", "ended > 0 AND started > 0"),
        ("failures", "ended", f"ended > 0 AND state = {int(State.FAILED)}"),
    ):
        counted = [0] * bins
        for number, count in connection.execute(
            f"SELECT CAST(({column} - :first) / :width AS INTEGER) AS bin, count(*) FROM runs"
            f" WHERE state > 0 AND {condition} GROUP BY bin",
            values,
        ):
            if 0 <= number < bins:
                counted[number] = count
        counts[name] = tuple(counted)
    return History(first, width, (0.0,) * bins, (cores * width,) * bins, **counts)
