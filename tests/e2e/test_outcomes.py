"""Jobs that start by another outcome than the success of others: by command and request, and after a crash."""

from __future__ import annotations

from pathlib import Path

from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import Manager
from tests.support.crashing import Crashing, marking
from tests.support.pilot import run, write_requests
from tests.support.serving import served
from tests.support.waiting import wait_for


def test_waits_for_outcomes_survive_the_death_of_the_manager(tmp_path: Path):
    jobs = [
        marking("ran", "sleep 100"),
        marking("late", "until test -e go; do sleep 0.05; done; exit 1"),
        {**marking("start"), "dependencies": {"afterstart": ["ran"], "afterany": ["late"]}},
        {**marking("notok"), "dependencies": {"afternotok": ["late"]}},
        {**marking("never"), "dependencies": {"afternotok": ["start"]}},
    ]
    crashing = Crashing(tmp_path, write_requests(tmp_path / "r.json", jobs), "--nodes", "4")
    crashing.start("qcg-pm")
    wait_for(lambda: sorted(crashing.marks()) == ["late", "ran"], what="two starts")
    run("qcg-pm", "cancel", "--path", tmp_path, "ran")
    wait_for(lambda: "CANCELED" in run("qcg-pm", "jobs", "--path", tmp_path, "ran").stdout, what="the end of `ran`")
    crashing.kill_manager()
    (tmp_path / "go").touch()
    assert crashing.finish("qcg-pm").returncode == 1
    assert sorted(crashing.marks()) == ["late", "notok", "ran", "start"]
    why = run("qcg-pm", "why", "--path", tmp_path, "never").stdout
    assert "it runs only if 'start' does not succeed, and 'start' is SUCCEED" in why


def test_the_client_and_the_command_line_submit_jobs_by_outcome(tmp_path: Path):
    with served(tmp_path, "--nodes", "2"), Manager.of_run(tmp_path, {"log_file": ""}) as manager:
        manager.submit(Jobs().add(name="a", exec="false").add(name="b", exec="true", afternotok=["a"]))
        submitted = run(
            "qcg-pm", "submit", "--path", tmp_path, "--name", "c", "--wd", tmp_path, "--afterany", "a,b", "--", "true"
        )
        assert submitted.stdout == "c\n", submitted.stderr
        assert manager.wait4(["a", "b", "c"]) == {"a": "FAILED", "b": "SUCCEED", "c": "SUCCEED"}
        info = manager.send_request({"request": "why", "jobNames": ["b"]})
        assert info["data"]["jobs"]["b"]["data"]["reason"] == "succeeded"


def test_a_fallback_that_is_not_needed_is_no_failure(tmp_path: Path):
    wanted = {"name": "fast", "exec": "true"}
    fallback = {"name": "safe", "exec": "true", "afternotok": "fast"}
    after = {"name": "report", "exec": "true", "after": "safe"}
    path = write_requests(tmp_path / "r.json", [wanted, fallback, after])
    assert run("qcg-pm", "run", path, "--wd", tmp_path, "--nodes", "2").returncode == 0
    with served(tmp_path, "--nodes", "2"), Manager.of_run(tmp_path, {"log_file": ""}) as manager:
        manager.send_request({"request": "submit", "jobs": [wanted, fallback, after]})
        assert run("qcg-pm", "wait", "--path", tmp_path).returncode == 0
        assert run("qcg-pm", "wait", "--path", tmp_path, "safe").returncode == 1
