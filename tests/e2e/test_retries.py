"""Jobs that fail and are started again, as a user sees them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.crashing import Crashing
from tests.support.pilot import job, run, write_requests
from tests.support.waiting import wait_for

THIRD_TIME = "echo $0 >> tries; echo attempt $0 >&2; [ $0 = 3 ]"
"""A script with the number of its attempt as $0. The third attempt succeeds."""


def retried(name: str, script: str, retry: Any, **more: Any) -> dict[str, Any]:
    return job(name, "bash", "-c", script, "${attempt}", retry=retry, **more)


def test_a_job_is_started_again_until_it_succeeds_and_every_attempt_is_listed(tmp_path: Path):
    delay = {"max": 4, "delay": 0.2, "factor": 1}
    jobs = [retried("a", THIRD_TIME, delay, stdout="out.${attempt}"), job("b", "true", after="a")]
    result = run("qcg-pm", "run", write_requests(tmp_path / "r.json", jobs), "--nodes", "1", "--wd", tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "tries").read_text().split() == ["1", "2", "3"]
    assert all((tmp_path / f"out.{number}").exists() for number in (1, 2, 3))
    out = next(tmp_path.glob(".qcgpjm-service-*")) / "out"
    assert (out / "a.err").read_text() == "attempt 1\n"
    assert (out / "a~2.err").read_text() == "attempt 2\n"
    shown = run("qcg-pm", "info", "--path", tmp_path, "a").stdout
    assert "attempt 1: exit code 1; on" in shown
    assert shown.count("QUEUED") == 3
    report = (tmp_path / "jobs.report").read_text()
    assert "    attempt 2: exit code 1; on" in report


def test_the_report_in_json_has_causes_and_policy(tmp_path: Path):
    jobs = [retried("a", "kill -9 $$", {"on": {"signal": 1}})]
    file = write_requests(tmp_path / "r.json", jobs)
    result = run("qcg-pm", "run", file, "--nodes", "1", "--wd", tmp_path, "--report-format", "json")
    assert result.returncode != 0
    (entry,) = map(json.loads, (tmp_path / "jobs.report").read_text().splitlines())
    assert entry["retry"] == {"on": {"signal": 1}}
    assert [(attempt["attempt"], attempt["cause"], attempt["exit_code"]) for attempt in entry["attempts"]] == [
        (1, "signal", -9)
    ]
    assert entry["messages"].endswith("(attempt 2)")


def test_the_wall_time_grows_until_it_is_enough(tmp_path: Path):
    growing = {"on": {"timeout": 3}, "grow": {"wt": ["0.4s", "30s"]}}
    jobs = [retried("a", "[ $0 = 3 ] || sleep 20", growing, wt="0.3s")]
    file = write_requests(tmp_path / "r.json", jobs)
    result = run("qcg-pm", "run", file, "--nodes", "1", "--wd", tmp_path)
    assert result.returncode == 0, result.stderr


def test_retry_for_a_whole_run(tmp_path: Path):
    jobs = [job("a", "bash", "-c", THIRD_TIME, "${attempt}"), retried("b", "exit 1", 0)]
    file = write_requests(tmp_path / "r.json", jobs)
    run("qcg-pm", "run", file, "--nodes", "2", "--wd", tmp_path, "--retry", '{"on": {"exit": 2}}')
    states = {
        line.split()[0]: line.split()[1] for line in run("qcg-pm", "jobs", "--path", tmp_path).stdout.splitlines()
    }
    assert states["a"] == "SUCCEED"
    wrong = run("qcg-pm", "run", file, "--retry", "often")
    assert wrong.returncode == 2
    assert '"often" is neither a number nor a JSON object' in wrong.stderr


def has_marks(crashing: Crashing, number: int) -> bool:
    return len(crashing.marks()) >= number


def test_no_attempt_runs_twice_when_managers_are_killed(tmp_path: Path):
    """Each job fails twice and then succeeds: every attempt starts once, whatever happens to managers."""
    script = "echo $1.$0 >> marks; sleep 0.05; [ $0 -ge 3 ]"
    jobs = [job(f"j{number}", "bash", "-c", script, "${attempt}", f"j{number}", retry=2) for number in range(20)]
    crashing = Crashing(tmp_path, write_requests(tmp_path / "r.json", jobs), "--nodes", "2")
    for marks in (5, 15, 30, 45):
        crashing.start()
        wait_for(partial(has_marks, crashing, marks), what=f"{marks} starts")
        crashing.kill_manager()
    assert crashing.finish().returncode == 0
    assert sorted(crashing.marks()) == sorted(f"j{number}.{attempt}" for number in range(20) for attempt in (1, 2, 3))
