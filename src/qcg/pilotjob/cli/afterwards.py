"""How jobs ended, from the registry of a manager that has ended."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from qcg.pilotjob.core.states import State
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.journal import reading
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.records import JobRecord
from qcg.pilotjob.journal.snapshot import snapshot


def final_states(run_dir: Path, names: list[str] | None) -> dict[str, str] | None:
    """Of these jobs and iterations, or of all jobs; None when the registry does not know how all of them ended."""
    try:
        with snapshot(run_dir / FILE_NAME) as connection:
            jobs = {record.name: record for record in reading.job_records(connection)}
            wanted = list(jobs) if names is None else names
            states = {name: _state(connection, jobs, name) for name in wanted}
    except JournalError:
        return None
    final = {name: state.name for name, state in states.items() if state is not None and state.is_final}
    return final if len(final) == len(states) else None


def _state(connection: sqlite3.Connection, jobs: dict[str, JobRecord], name: str) -> State | None:
    job, colon, index = name.partition(":")
    record = jobs.get(job)
    if record is None or not colon:
        return None if record is None else record.state
    spec = reading.spec_of(connection, record.seq)
    iteration = None if spec is None else msgspec.msgpack.decode(spec, type=JobDescription).iteration
    if iteration is None:
        return None
    position = iteration.indices().index(int(index))
    run = next(reading.runs_of(connection, record.seq, [position]), None)
    return run.state if run is not None else record.rest or record.state
