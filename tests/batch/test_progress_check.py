"""A chain of allocations ends when nothing happens in one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.batch.progress_check import is_too_long, longest_of, progress_of
from tests.support.pilot import job, run, write_requests


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    jobs = [job("quick", "true", iteration=2), job("long", "true", wt="1h"), job("longest", "true", wt="2h")]
    file = write_requests(tmp_path / "jobs.json", jobs)
    done = run("qcg-pm", "run", file, "--id=mine", "--nodes=1", "--time-limit=60s", cwd=tmp_path)
    assert done.returncode == 4, done.stdout + done.stderr
    return tmp_path / ".qcgpjm-service-mine"


def test_a_missing_run_has_made_no_progress(tmp_path: Path):
    assert progress_of(tmp_path) == (0, 0)


def test_starts_and_ends_are_progress_and_a_manager_alone_is_not(run_dir: Path):
    before = progress_of(run_dir)
    assert before == (2, 1)
    assert run("qcg-pm", "run", "--resume", run_dir, cwd=run_dir.parent).returncode == 4
    assert progress_of(run_dir) == before
    assert run("qcg-pm", "run", "--resume", run_dir, "--time-limit=100m", cwd=run_dir.parent).returncode == 4
    assert progress_of(run_dir) == (3, 2)


def test_the_job_with_the_longest_wall_time_is_named(run_dir: Path):
    assert longest_of(run_dir).startswith("Of the remaining jobs, 'longest' has the longest wall time (wt), 7200 s")


def test_a_job_is_too_long_for_an_allocation_that_is_known_to_be_shorter(run_dir: Path):
    assert is_too_long(run_dir, 7200)
    assert not is_too_long(run_dir, 7201)
    assert not is_too_long(run_dir, None)
