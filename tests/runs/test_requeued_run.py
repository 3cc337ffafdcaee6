"""The run that an allocation continues after its batch system has queued it again."""

from __future__ import annotations

import shlex
import sqlite3
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.common.options import Options, UsageError
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.variables import SubmissionContext
from qcg.pilotjob.journal import commit_group
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.metadata import OPTIONS, STARTED_IN_ALLOCATION
from qcg.pilotjob.runs.discovery import RESTARTS_TIMEOUT, requeued_run
from tests.support.memory_batch import VARIABLE, MemoryBatch, register
from tests.support.pilot import job

IN_ALLOCATION = {VARIABLE: "7"}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryBatch:
    return register(monkeypatch)


@pytest.fixture
def silent(memory: MemoryBatch, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A batch system that does not answer. The seconds that it was given for each answer."""
    patience_given = []

    def no_answer(environ: object, patience: float) -> int:
        patience_given.append(patience)
        raise ClusterError("qstat: Connection refused")

    monkeypatch.setattr(memory, "requeue_count", no_answer)
    return patience_given


def begin_run(wd: Path, name: str, file_path: str, *, allocation: str = "7", ended: bool = False) -> Path:
    """A run without a manager and with one job."""
    run_dir = wd / f".qcgpjm-service-{name}"
    run_dir.mkdir(mode=0o700)
    journal = Journal.create(run_dir / FILE_NAME)
    journal.set_metadata(OPTIONS, Options(wd=str(wd), file_path=file_path))
    journal.set_metadata(STARTED_IN_ALLOCATION, allocation)
    journal.close()
    (description,) = parse_jobs([job("a", "true")], SubmissionContext(1, datetime(2026, 1, 1), "local", "u"))
    connection = sqlite3.connect(run_dir / FILE_NAME)
    with connection:
        connection.execute(commit_group.INSERT_JOB, (1, "a", 1.0, 0, msgspec.msgpack.encode(description)))
        if ended:
            connection.execute(commit_group.END_JOB, (int(State.SUCCEED), 2.0, "", 1))
    connection.close()
    return run_dir


def test_a_batch_system_that_does_not_answer_lets_the_first_run_of_an_allocation_begin(
    silent: list[float], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    begin_run(tmp_path, "of-another-file", "second.json")
    begin_run(tmp_path, "of-another-allocation", "first.json", allocation="6")
    begin_run(tmp_path, "ended", "first.json", ended=True)
    assert requeued_run(tmp_path, "first.json", None, IN_ALLOCATION) is None
    assert "cannot tell whether Memory has requeued this job (qstat: Connection refused)" in caplog.text
    assert silent == [RESTARTS_TIMEOUT]


def test_a_batch_system_that_does_not_answer_lets_no_jobs_run_twice(silent: list[float], tmp_path: Path):
    left = begin_run(tmp_path, "left", "first.json")
    with pytest.raises(UsageError) as refusal:
        requeued_run(tmp_path, "first.json", None, IN_ALLOCATION)
    said = str(refusal.value)
    assert f"{left} was started in this allocation with this file and has unfinished jobs" in said
    assert "it is not known whether Memory has queued the allocation again (qstat: Connection refused)" in said
    assert f"continue that run with --resume {shlex.quote(str(left))}" in said
    assert "--id" in said
    # As the sentence says: a new name starts a new run.
    assert requeued_run(tmp_path, "first.json", "new", IN_ALLOCATION) is None


@pytest.mark.parametrize(("restarts", "continues"), [(0, False), (1, True)])
def test_an_allocation_continues_its_run_only_after_it_was_queued_again(
    memory: MemoryBatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, restarts: int, continues: bool
):
    monkeypatch.setattr(memory, "requeue_count", lambda environ, patience: restarts)
    left = begin_run(tmp_path, "left", "first.json")
    begin_run(tmp_path, "ended", "first.json", ended=True)
    assert requeued_run(tmp_path, "first.json", None, IN_ALLOCATION) == (left if continues else None)
