"""The order of waiting jobs, as a user sees and changes it: priorities, holds and releases."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.api.aio import AsyncManager
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from tests.support.crashing import Crashing, marking, waiting
from tests.support.pilot import job, run, write_requests
from tests.support.waiting import wait_for


def test_priorities_decide_in_both_forms_and_are_reported(tmp_path: Path):
    jobs: list[dict[str, Any]] = [
        {"name": "a", "exec": "true"},
        {"name": "b", "exec": "true", "priority": 1},
        {"name": "c", "execution": {"exec": "true"}, "priority": 2},
    ]
    file = write_requests(tmp_path / "r.json", jobs)
    result = run("qcg-pm", "run", file, "--cores", "1", "--wd", tmp_path, "--report-format", "json")
    assert result.returncode == 0, result.stderr
    entries = [json.loads(line) for line in (tmp_path / "jobs.report").read_text().splitlines()]
    assert [(entry["name"], entry.get("priority")) for entry in entries] == [("c", 2), ("b", 1), ("a", None)]
    assert "    priority: 2" in run("qcg-pm", "info", "--path", tmp_path, "c").stdout


def test_a_run_with_only_held_jobs_left_reports_it_and_continues_after_release(tmp_path: Path):
    jobs = [{**job("a", "true"), "hold": True}, job("b", "true", after="a"), job("c", "true")]
    file = write_requests(tmp_path / "r.json", jobs)
    result = run("qcg-pm", "run", file, "--cores", "1", "--wd", tmp_path)
    assert result.returncode == 4
    last = result.stderr.splitlines()[-1]
    assert last.startswith("2 jobs are left, because 1 job is held. Continue with: qcg-pm run --resume ")
    assert last.endswith(" --release")
    assert "held since" in run("qcg-pm", "jobs", "--path", tmp_path).stdout
    again = run("qcg-pm", "run", "--resume", tmp_path)
    assert again.returncode == 4, "nobody has released it"
    released = run("qcg-pm", "run", "--resume", tmp_path, "--release")
    assert released.returncode == 0, released.stderr
    assert "1 job was released" in released.stderr + released.stdout


def test_commands_hold_and_release_waiting_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    jobs = Jobs().add_std({"name": "long", "execution": {"exec": "sleep", "args": ["60"]}})
    jobs.add(name="sweep", exec="true", iteration=3).add(name="last", exec="true")
    with LocalManager(["--wd", str(tmp_path), "--cores", "1"], {"wdir": str(tmp_path)}) as manager:
        manager.submit(jobs)
        wait_for(lambda: manager.status("long")["jobs"]["long"]["data"]["status"] == "EXECUTING")
        where = ("--path", str(tmp_path))
        assert run("qcg-pm", "hold", *where, "sweep:1", "last").stdout == "2 held\n"
        refused = run("qcg-pm", "hold", *where, "last")
        assert (refused.returncode, refused.stderr) == (1, "Error: job 'last' is held already\n")
        assert run("qcg-pm", "release", *where, "l*").stdout == "1 released\n"
        shown = run("qcg-pm", "why", *where, "sweep:1").stdout
        assert "it is held since" in shown
        assert shown.endswith("release it with: qcg-pm release sweep:1\n")
        assert "held since" in run("qcg-pm", "info", *where, "sweep:1").stdout
        manager.cancel("long")
        assert manager.wait4(["last", "sweep:2"], 30) == {"last": "SUCCEED", "sweep:2": "SUCCEED"}
        assert manager.status("sweep:1")["jobs"]["sweep:1"]["data"]["status"] == "QUEUED"
        assert asyncio.run(release("sweep")) == {"released": 1}
        assert manager.wait4("sweep", 30) == {"sweep": "SUCCEED"}


async def release(name: str) -> object:
    async with AsyncManager() as client:
        return await client.release(name)


def test_holds_survive_a_killed_manager(tmp_path: Path):
    jobs = [{**marking("a"), "hold": True}, waiting("b"), {**marking("c", iteration=2), "hold": True}]
    pilot = Crashing(tmp_path, write_requests(tmp_path / "r.json", jobs), "--cores", "1")
    pilot.start()
    wait_for(lambda: pilot.marks() == ["b"])
    pilot.kill_manager()
    (tmp_path / "release").touch()
    assert pilot.finish().returncode == 4
    assert pilot.marks() == ["b"]
    assert pilot.finish("qcg-pm", "--release").returncode == 0
    assert pilot.marks() == ["b", "a", "c:0", "c:1"]


def test_a_waiting_job_gets_another_priority_and_wall_time(tmp_path: Path):
    where = ("--path", str(tmp_path))
    with LocalManager(["--wd", str(tmp_path), "--cores", "2"], {"wdir": str(tmp_path)}) as manager:
        manager.submit(Jobs().add(name="gate", exec="sleep", args=["60"], numCores=2))
        wait_for(lambda: manager.status("gate")["jobs"]["gate"]["data"]["status"] == "EXECUTING")
        manager.submit(Jobs().add(name="a", exec="true", numCores=2).add(name="b", exec="sleep", args=["60"]))
        assert (
            run("qcg-pm", "set", *where, "b", "--priority", "5", "--wt", "1s", "--cores", "2").stdout == "1 changed\n"
        )
        refused = run("qcg-pm", "set", *where, "a", "--cores", "9")
        assert refused.stderr == "Error: job 'a' cannot be changed: 9 cores requested, but only 2 exist\n"
        assert manager.set("gate", priority=1)["errors"]["gate"].startswith("job 'gate' is EXECUTING")
        assert manager.why("a")["jobs"]["a"]["data"]["higherPriority"] == 1
        manager.cancel("gate")
        assert manager.wait4(["a", "b"], 60) == {"a": "SUCCEED", "b": "FAILED"}
        shown = run("qcg-pm", "info", *where, "b").stdout
        assert "    priority: 5" in shown
        assert "exceeded its wall time of 1 s" in shown


def test_changes_survive_a_killed_manager(tmp_path: Path):
    jobs = [waiting("first"), marking("a"), marking("b"), marking("c")]
    pilot = Crashing(tmp_path, write_requests(tmp_path / "r.json", jobs), "--cores", "1")
    pilot.start()
    wait_for(lambda: pilot.marks() == ["first"])
    assert run("qcg-pm", "set", "--path", tmp_path, "c", "--priority", "9").returncode == 0
    pilot.kill_manager()
    (tmp_path / "release").touch()
    assert pilot.finish().returncode == 0
    assert pilot.marks() == ["first", "c", "a", "b"]
