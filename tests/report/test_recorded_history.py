"""The history of a run is read in small steps, between which a manager can do other work."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from qcg.pilotjob.core.effects import Added, Requeued, Transition
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, PastAttempt
from qcg.pilotjob.journal import run_history
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.report.recorded_history import FailureSteps, RecordedHistory
from tests.report.test_recorded_summary import ONE, job, ran

JOBS = 300


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """As many jobs that were never started as jobs that failed once, and have succeeded then."""
    journal = Journal.create(tmp_path / "registry.sqlite")
    never = [job(seq, f"never{seq}") for seq in range(1, JOBS + 1)]
    again = [job(seq, f"again{seq}") for seq in range(JOBS + 1, 2 * JOBS + 1)]
    journal.record(Added([*never, *again]))
    for one in never:
        journal.record(Transition(one, -1, State.FAILED, 101.0, message="it needs 9 cores"))
    for one in again:
        attempt = Attempt(one, -1, 1, ONE, 101.0)
        journal.record(Transition(one, -1, State.EXECUTING, 101.0, attempt))
        attempt.started, attempt.pid = 101.0, 4711
        journal.record(Requeued(attempt, PastAttempt("failed", 103.0, 3)))
        journal.record(ran(one, 104.0, 105.0))
    journal.commit()
    journal.close(commit=True)
    with snapshot(tmp_path / "registry.sqlite") as connection:
        yield connection


def operations(connection: sqlite3.Connection, steps: Iterator[None]) -> list[int]:
    """The operations of SQLite in each step."""
    found = [0]

    def count() -> int:
        found[-1] += 1
        return 0

    connection.set_progress_handler(count, 1)
    for _ in steps:
        found.append(0)  # noqa: PERF401 the handler counts meanwhile
    connection.set_progress_handler(None, 1)
    return found


def test_no_step_reads_more_than_a_part(registry: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_history, "PART", JOBS // 10)
    for reading in (RecordedHistory(registry, 110.0, 4), FailureSteps(registry)):
        steps = operations(registry, reading.steps())
        assert max(steps) < sum(steps) / 8, steps


@pytest.mark.parametrize("part", [1, 7, 10 * JOBS])
def test_the_parts_add_up(registry: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, part: int):
    monkeypatch.setattr(run_history, "PART", part)
    past, failures = RecordedHistory(registry, 110.0, 4), FailureSteps(registry)
    for reading in (past, failures):
        for _ in reading.steps():
            pass
        assert [(group.message, group.number, group.example) for group in reading.failures.largest(5)] == [
            ("it needs 9 cores", JOBS, (1, -1))
        ]
    assert past.bins is not None
    history = past.bins.history()
    assert sum(history.busy) == pytest.approx(3 * JOBS)
    assert (sum(history.starts), sum(history.ends)) == (2 * JOBS, 2 * JOBS)
