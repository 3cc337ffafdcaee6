"""A first summary of a large run without a manager: the counts that take less than a second."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from qcg.pilotjob.core.job_states import State, counts_by_name
from qcg.pilotjob.journal import aggregates
from qcg.pilotjob.journal.metadata import RESOURCES, DamagedMetadata
from qcg.pilotjob.report.run_summary import MOST_NODES, NodeSummary, RunSummary
from qcg.pilotjob.report.summary import count_states
from qcg.pilotjob.runs.rundir import PREFIX

LARGE = 200_000
"""Number of attempts from which on the whole summary takes so long that a first summary is made."""


def is_large(connection: sqlite3.Connection) -> bool:
    (attempts,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    return bool(attempts >= LARGE)


def first_summary(connection: sqlite3.Connection, run_dir: Path) -> RunSummary:
    """The summary without its history and without groups of reasons."""
    counts = count_states(connection, at_work=False)
    first, last = aggregates.first_and_last(connection) or (None, None)
    is_over = first is not None and not any(counts.jobs[state] for state in State if not state.is_final)
    try:
        sizes = RESOURCES.read(connection) or []
    except DamagedMetadata:
        sizes = []
    return RunSummary(
        run=run_dir.name.removeprefix(PREFIX),
        directory=str(run_dir.absolute()),
        at=time.time(),
        alive=False,
        host="",
        started=first,
        ended=last if is_over else None,
        jobs=counts_by_name(counts.jobs),
        iterations=counts_by_name(counts.iterations),
        units=counts_by_name(counts.units),
        cores=sum([size.cores for size in sizes]),
        used=0,
        gpus=0,
        gpus_used=0,
        running=0,
        nodes=tuple([NodeSummary(size.name, size.cores, 0) for size in sizes[:MOST_NODES]]),
        more_nodes=max(len(sizes) - MOST_NODES, 0),
        rates=None,
        estimate=None,
        waiting=(),
        failed=(),
        history=None,
    )
