"""A run whose time limit is reached before its jobs have ended: it ends cleanly, prints the resume hint, and can be
resumed."""

from __future__ import annotations

from pathlib import Path

from tests.support.pilot import Run, job, run, write_requests


def started(wd: Path, *options: str) -> Run:
    return Run(wd, run("qcg-pm", "run", "requests.json", "--report-format", "json", *options, cwd=wd))


def test_jobs_that_run_at_the_end_of_the_time_are_ended_and_run_again(tmp_path: Path):
    script = "echo x >> starts.$0; trap 'echo x >> terms.$0; exit 0' TERM; until [ -e go ]; do sleep 0.05; done"
    write_requests(tmp_path / "requests.json", [job("a", "bash", "-c", script, "${it}", iteration={"stop": 4})])
    first = started(tmp_path, "--nodes", "2", "--time-limit", "20s", "--grace", "12")
    assert first.done.returncode == 4
    assert "1 job is left, because the time of this manager is over" in first.done.stderr
    assert first.report == {}
    # These jobs exit with 0 at SIGTERM, and must not count as succeeded.
    assert sorted(path.name for path in tmp_path.glob("terms.*")) == ["terms.0", "terms.1"]
    assert "The manager ended before all jobs did." in first.done.stdout
    assert ["QUEUED", "1", "4"] in [line.split() for line in first.done.stdout.splitlines()]
    listed = run("qcg-pm", "jobs", cwd=tmp_path)
    assert listed.stdout.splitlines() == ["name  state", "a     QUEUED"]
    assert "1 job has not ended. Continue: `qcg-pm run --resume" in listed.stderr
    assert run("qcg-pm", "status", cwd=tmp_path).stdout.splitlines()[1].split()[:4] == ["jobs", "1", "1", "0"]
    assert run("qcg-pm", "why", "a:0", "a:3", cwd=tmp_path).stdout.splitlines() == [
        "a:0 QUEUED: it was stopped when its manager ended; a manager that resumes the run starts it again",
        "a:3 QUEUED: it had not been started when its manager ended; a manager that resumes the run starts it",
    ]
    (tmp_path / "go").touch()
    second = Run(tmp_path, run("qcg-pm", "run", "--resume", ".", "--time-limit", "1h", cwd=tmp_path))
    assert second.done.returncode == 0
    assert set(second.states.values()) == {"SUCCEED"}
    assert [len((tmp_path / f"starts.{it}").read_text().split()) for it in range(4)] == [2, 2, 1, 1]


def test_a_run_with_only_too_long_jobs_left_ends_at_once(tmp_path: Path):
    long = job("long", "true", resources={"numCores": 1, "wt": "2h"})
    write_requests(tmp_path / "requests.json", [long, job("short", "true"), job("after", "true", after="long")])
    done = started(tmp_path, "--nodes", "2", "--time-limit", "1h")
    assert done.done.returncode == 4, done.done.stderr
    assert "2 jobs are left, because not enough time is left. Continue with: qcg-pm run --resume" in done.done.stderr
    assert done.states == {"short": "SUCCEED"}
    again = Run(tmp_path, run("qcg-pm", "run", "--resume", ".", "--time-limit", "3h", cwd=tmp_path))
    assert again.done.returncode == 0
    assert set(again.states) == {"long", "short", "after"}


def test_a_run_resumed_with_too_few_cores_keeps_its_jobs_for_a_larger_one(tmp_path: Path):
    wide = job("wide", "true", resources={"numCores": 4, "wt": "2h"})
    write_requests(tmp_path / "requests.json", [wide])
    assert started(tmp_path, "--nodes", "4", "--time-limit", "1h").done.returncode == 4
    smaller = run("qcg-pm", "run", "--resume", ".", "--nodes", "2", "--time-limit", "3h", cwd=tmp_path)
    assert smaller.returncode == 4
    assert "the remaining nodes cannot satisfy any request: 4 cores requested, but only 2 exist" in smaller.stderr
    assert run("qcg-pm", "run", "--resume", ".", "--nodes", "4", cwd=tmp_path).returncode == 0


def test_signals_and_times_that_make_no_sense_are_refused(tmp_path: Path):
    write_requests(tmp_path / "requests.json", [job("a", "true")])
    wrong = (("--grace-signal=KILL", "catch"), ("--grace-signal=HELLO", "catch"), ("--time-limit=x", "1h30m"))
    for option, word in wrong:
        refused = run("qcg-pm", "run", "requests.json", option, cwd=tmp_path)
        assert refused.returncode == 2
        assert word in refused.stderr
