"""A run with a million jobs is resumed in seconds. The short tier uses a tenth of them."""

from __future__ import annotations

import os
import sqlite3
import time
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.variables import SubmissionContext
from qcg.pilotjob.journal import commit_group
from qcg.pilotjob.journal.encoding import encode_grant
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.metadata import OPTIONS
from qcg.pilotjob.journal.schema import place
from tests.support.pilot import job, start
from tests.support.tiers import per_tier

JOBS = per_tier(100_000, 1_000_000)
SECONDS = per_tier(3, 15)
MEGABYTES = per_tier(400, 1000)
"""More memory than the test process has, because Linux counts the memory of a parent until its child executes a
program."""


@pytest.mark.sampled
@pytest.mark.timeout(300)
def test_a_run_with_a_million_ended_jobs_is_resumed_in_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run_dir = tmp_path / ".qcgpjm-service-x"
    run_dir.mkdir(mode=0o700)
    write_registry(run_dir / FILE_NAME, tmp_path)
    began = time.monotonic()
    process = start("qcg-pm-service", "--resume", run_dir)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    _, errors = process.communicate()
    memory = usage.ru_maxrss / 1024
    # Seconds of processor time: other load of the machine must not count.
    computed = usage.ru_utime + usage.ru_stime
    with capsys.disabled():
        print(f" [{JOBS} jobs: {took:.1f} s, {computed:.1f} s computing, {memory:.0f} MB] ", end="")
    assert process.returncode == 0, errors
    assert f"the run has ended: {JOBS + 1} SUCCEED" in (run_dir / "service.log").read_text()
    assert (tmp_path / "ran").exists()
    assert computed < SECONDS
    assert memory < MEGABYTES


def write_registry(path: Path, wd: Path) -> None:
    """Write the rows of many ended jobs and one waiting job, as a manager does, all at once."""
    journal = Journal.create(path)
    journal.set_metadata(OPTIONS, Options(wd=str(wd), nodes="4", wait=True))
    journal.close()
    arrival = SubmissionContext(1, datetime(2026, 1, 1), "local", "u")
    (description,) = parse_jobs([job("last", "touch", "ran")], arrival)
    spec = msgspec.msgpack.encode(description)
    grant = encode_grant(Grant((NodePart("n0", (0,)),)))
    done, ended = int(State.SUCCEED), 4.0
    numbers = range(1, JOBS + 1)
    connection = sqlite3.connect(path)
    with connection:
        connection.executemany(commit_group.INSERT_JOB, ((seq, f"job-{seq}", 1.0, 0, spec) for seq in numbers))
        runs = (
            (place(seq, -1), 1, done, 2.0, 3.0, ended, 7, 0, grant, 0, "", *commit_group.NOT_COUNTED) for seq in numbers
        )
        connection.executemany(commit_group.PUT_ATTEMPT, runs)
        connection.execute(commit_group.INSERT_JOB, (JOBS + 1, "last", 1.0, 0, spec))
    connection.close()
