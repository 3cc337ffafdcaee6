"""Prefill: short jobs are sent to their host before cores are free for them."""

from __future__ import annotations

from pathlib import Path

from tests.support.pilot import job, run_requests

COUNT = 150


def test_a_long_job_does_not_delay_other_jobs(tmp_path: Path):
    """The long job ends when all others have run: jobs that were prefilled behind it must be retracted."""
    (tmp_path / "done").mkdir()
    jobs = [job(f"short-{number}", "touch", f"done/{number}") for number in range(COUNT)]
    jobs.insert(COUNT // 2, job("long", script=f"until [ $(ls done | wc -l) = {COUNT} ]; do sleep 0.1; done"))
    done = run_requests(tmp_path, jobs, options=("--nodes", "2"))
    assert set(done.states.values()) == {"SUCCEED"}
    assert len(done.states) == COUNT + 1
    assert done.done.returncode == 0


def test_short_jobs_follow_one_another_and_never_two_have_one_core(tmp_path: Path):
    script = "mkdir core-$QCG_PM_CPU_SET && sleep 0.01 && rmdir core-$QCG_PM_CPU_SET"
    done = run_requests(tmp_path, [job("it", script=script, iteration=COUNT)], options=("--nodes", "2"))
    assert set(done.states.values()) == {"SUCCEED"}
    assert len(done.states) == COUNT + 1
