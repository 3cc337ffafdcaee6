"""Jobs that ended without success are rerun, in a live run and in an ended run."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

import pytest

from qcg.pilotjob.api.aio import AsyncManager
from qcg.pilotjob.api.errors import RequestRefusedError, WrongArgumentsError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import Manager
from tests.support.crashing import Crashing, marking, waiting
from tests.support.pilot import run, write_requests
from tests.support.serving import served
from tests.support.waiting import wait_for

NEEDS_FILE = "test -e ok"
CHAIN = [
    marking("done"),
    marking("a", NEEDS_FILE),
    *[marking(name, after=other) for name, other in (("b", "a"), ("c", "b"), ("d", "c"))],
    marking("i", "[ ${it} -ne 1 ] || test -e ok", iteration=3),
]


def marks(wd: Path) -> list[str]:
    return sorted((wd / "marks").read_text().split())


def test_an_ended_run_is_resumed_with_its_failed_jobs(tmp_path: Path):
    file = write_requests(tmp_path / "r.json", CHAIN)
    assert run("qcg-pm", "run", file, "--nodes", "2", "--wd", tmp_path).returncode == 1
    resumed = ("qcg-pm", "run", "--resume", tmp_path, "--rerun", "failed")
    again = run(*resumed)
    assert again.returncode == 1, "it fails again"
    assert "5 jobs and iterations are queued again" in again.stderr
    (tmp_path / "ok").touch()
    assert run(*resumed).returncode == 0
    assert marks(tmp_path) == sorted(["done", *["a"] * 3, "b", "c", "d", "i:0", *["i:1"] * 3, "i:2"])
    info = json.loads(run("qcg-pm", "info", "--json", "--path", tmp_path, "a").stdout)["a"]
    assert info["status"] == "SUCCEED"
    last = run(*resumed)
    assert last.returncode == 0
    assert "Nothing runs again: no job or iteration is FAILED" in last.stderr
    plain = run("qcg-pm", "run", "--resume", tmp_path)
    assert "To run jobs again that have not succeeded, give --rerun failed" in plain.stderr


def test_an_ended_run_is_resumed_with_new_descriptions_of_its_failed_jobs(tmp_path: Path):
    write_requests(tmp_path / "r.json", CHAIN)
    assert run("qcg-pm", "run", tmp_path / "r.json", "--nodes", "2", "--wd", tmp_path).returncode == 1
    corrected = write_requests(tmp_path / "new.json", [CHAIN[0], marking("a"), *CHAIN[2:5], marking("i", iteration=3)])
    again = run("qcg-pm", "run", "--resume", tmp_path, "--rerun", "failed", "--from", corrected)
    assert again.returncode == 0, again.stderr
    assert "5 jobs and iterations are queued again" in again.stderr
    assert marks(tmp_path) == sorted(["done", "a", "a", "b", "c", "d", "i:0", "i:1", "i:1", "i:2"])


def test_new_descriptions_are_refused_before_the_run_is_resumed(tmp_path: Path):
    write_requests(tmp_path / "r.json", CHAIN)
    assert run("qcg-pm", "run", tmp_path / "r.json", "--nodes", "2", "--wd", tmp_path).returncode == 1
    before = marks(tmp_path)
    unknown = write_requests(tmp_path / "new.json", [marking("other"), marking("aa")])
    resumed = ("qcg-pm", "run", "--resume", tmp_path)
    refused = run(*resumed, "--rerun", "failed", "--from", unknown)
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        "Error: --from: there is no job 'other' that could be run again",
        "--from: there is no job 'aa' that could be run again; did you mean 'a'?",
    ]
    without = run(*resumed, "--from", unknown)
    assert without.returncode == 2
    assert "select them with --rerun STATES" in without.stderr
    absent = run(*resumed, "--rerun", "failed", "--from", tmp_path / "absent.json")
    assert absent.returncode == 2
    assert absent.stderr == f"Error: {tmp_path}/absent.json cannot be read: No such file or directory\n"
    assert marks(tmp_path) == before
    assert run(*resumed, "--rerun", "failed").returncode == 1, "it can still be resumed"


@pytest.mark.parametrize("words", [(), ("--from", "r.json")], ids=["states alone", "with descriptions"])
def test_a_rerun_of_nothing_says_so(tmp_path: Path, words: tuple[str, ...]):
    write_requests(tmp_path / "r.json", [marking("done")])
    assert run("qcg-pm", "run", "r.json", cwd=tmp_path).returncode == 0
    again = run("qcg-pm", "run", "--resume", ".", "--rerun", "all", *words, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    said = again.stdout + again.stderr
    assert ("Nothing runs again: no job or iteration " in said, "jobs and iterations are queued again" in said) == (
        True,
        False,
    )
    assert "FAILED, CANCELED or OMITTED" in said


def test_a_resumed_run_says_why_a_job_can_never_run(tmp_path: Path):
    write_requests(tmp_path / "r.json", [marking("wide", numCores=9)])
    assert run("qcg-pm", "run", "r.json", "--cores", "1", cwd=tmp_path).returncode == 1
    again = run("qcg-pm", "run", "--resume", ".", "--rerun", "failed", cwd=tmp_path)
    why = "job 'wide' can never run: 9 cores requested, but only 1 exists; give it a new description with --from"
    assert (again.returncode, why in again.stdout + again.stderr) == (1, True)


def test_a_rerun_without_a_manager_names_the_command_that_works(tmp_path: Path):
    write_requests(tmp_path / "r.json", CHAIN)
    assert run("qcg-pm", "run", tmp_path / "r.json", "--nodes", "2", "--wd", tmp_path, "--id", "x").returncode == 1
    refused = run("qcg-pm", "rerun", "--path", tmp_path, "--failed")
    assert refused.returncode == 2
    assert f"`qcg-pm run --resume {tmp_path}/.qcgpjm-service-x --rerun failed`" in refused.stderr


def test_a_rerun_survives_the_death_of_the_manager(tmp_path: Path):
    crashing = Crashing(tmp_path, write_requests(tmp_path / "r.json", CHAIN), "--nodes", "2")
    crashing.finish()
    (tmp_path / "ok").touch()
    manager = crashing.start("qcg-pm", "--rerun", "failed")
    wait_for(lambda: len(crashing.marks()) > 5 or manager.poll() is not None, what="a start")
    crashing.kill_manager()
    assert crashing.finish("qcg-pm", "--rerun", "all").returncode == 0
    starts = crashing.marks()
    assert starts.count("done") == starts.count("i:0") == 1
    assert starts.count("a") == starts.count("i:1") == 2
    assert starts.count("d") == 1


def test_jobs_of_a_live_run_are_run_again_by_command_and_request(tmp_path: Path):
    file = write_requests(tmp_path / "new.json", [marking("a", "exit 0")])
    with served(tmp_path, "--nodes", "2"), Manager.of_run(tmp_path, {"log_file": ""}) as manager:
        jobs = Jobs()
        for description in CHAIN:
            jobs.add_std(description)
        manager.submit(jobs)
        manager.wait4all()
        assert manager.rerun("done") == {
            "rerun": 0,
            "jobs": [],
            "errors": {"done": "job 'done' is SUCCEED; only jobs that ended without success run again"},
        }
        assert manager.rerun(states="failed")["rerun"] == 5
        manager.wait4all()
        shown = run("qcg-pm", "rerun", "--path", tmp_path, "a", "--from", file)
        assert (shown.returncode, shown.stdout) == (0, "4 jobs and iterations are queued again\n"), shown.stderr
        manager.wait4all()
        assert manager.status("d")["jobs"]["d"]["data"]["status"] == "SUCCEED"
        (tmp_path / "ok").touch()
        assert run("qcg-pm", "rerun", "--path", tmp_path, "--all").stdout == "1 job or iteration is queued again\n"
        manager.wait4all()
        assert manager.status("i")["jobs"]["i"]["data"]["status"] == "SUCCEED"
        nothing = run("qcg-pm", "rerun", "--path", tmp_path)
        assert nothing.returncode == 2
        assert "give NAMES, --failed" in nothing.stderr
        with pytest.raises(WrongArgumentsError):
            manager.rerun()
        with pytest.raises(RequestRefusedError, match="jobNames"):
            manager.send_request({"request": "rerunJob"})


SURVEY = [
    marking("model", "[ ${it} -ne 1 ] || test -e ok", iteration=3),
    {**marking("post", iteration=3), "dependencies": {"after": ["model:${it}"]}},
    {**marking("collect"), "dependencies": {"afterany": ["post"]}},
    {**marking("each", iteration=3), "dependencies": {"afterany": ["model:${it}"]}},
    {**marking("other"), "dependencies": {"afterany": ["model:0"]}},
    {**marking("never"), "dependencies": {"afternotok": ["model:0"]}},
]
STALE = [
    "job 'collect' (afterany 'post') has run before and does not run again; its results may be out of date",
    "job 'each' (afterany 'model') has run before and does not run again; its results may be out of date",
]


def test_a_rerun_names_the_jobs_that_have_run_after_another_outcome(tmp_path: Path):
    file = write_requests(tmp_path / "r.json", SURVEY)
    assert run("qcg-pm", "run", file, "--nodes", "2", "--wd", tmp_path).returncode == 1
    again = run("qcg-pm", "run", "--resume", tmp_path, "--rerun", "failed")
    assert [line for line in again.stderr.splitlines() if "does not run again" in line] == [
        f"Warning: {warning}." for warning in STALE
    ]
    corrected = write_requests(tmp_path / "new.json", SURVEY[:1])
    again = run("qcg-pm", "run", "--resume", tmp_path, "--rerun", "failed", "--from", corrected)
    assert f"Warning: {STALE[0]}." in again.stderr.splitlines()
    with served(tmp_path, "--nodes", "2"), Manager.of_run(tmp_path, {"log_file": ""}) as manager:
        jobs = Jobs()
        for description in SURVEY:
            jobs.add_std(description)
        manager.submit(jobs)
        manager.wait4all()
        assert manager.rerun("model:1")["warnings"] == STALE


def test_jobs_run_again_in_the_middle_of_a_run(tmp_path: Path):
    """Failed jobs are rerun while other jobs run and wait."""
    with served(tmp_path, "--nodes", "2"), Manager.of_run(tmp_path, {"log_file": ""}) as manager:
        jobs = Jobs()
        for description in (*CHAIN, waiting("busy"), marking("later", after="busy")):
            jobs.add_std(description)
        manager.submit(jobs)
        manager.wait4(["d", "i"])
        assert manager.status("busy")["jobs"]["busy"]["data"]["status"] == "EXECUTING"
        (tmp_path / "ok").touch()
        assert manager.rerun(states="failed")["rerun"] == 5
        manager.wait4(["d", "i"])
        assert manager.status("busy")["jobs"]["busy"]["data"]["status"] == "EXECUTING"
        (tmp_path / "release").touch()
        manager.wait4all()
        states = {name: job["data"]["status"] for name, job in manager.status(list("abcdi"))["jobs"].items()}
        assert set(states.values()) == {"SUCCEED"}
    expected = ["a", "a", "b", "busy", "c", "d", "done", "i:0", "i:1", "i:1", "i:2", "later"]
    assert marks(tmp_path) == expected


def test_jobs_run_again_after_the_manager_was_killed(tmp_path: Path):
    """The manager that resumes the run starts jobs that had failed before the crash, and unfinished jobs."""
    jobs = [*CHAIN, waiting("busy"), marking("later", after="busy")]
    crashing = Crashing(tmp_path, write_requests(tmp_path / "r.json", jobs), "--nodes", "2")
    crashing.start()
    crashing.pid_of("busy")
    wait_for(lambda: {"a", "i", "d"} <= crashing.entries_so_far().keys(), what="the failures")
    crashing.kill_manager()
    (tmp_path / "ok").touch()
    crashing.release()
    assert crashing.finish("qcg-pm", "--rerun", "failed").returncode == 0
    expected = ["a", "a", "b", "busy", "c", "d", "done", "i:0", "i:1", "i:1", "i:2", "later"]
    assert marks(tmp_path) == expected


def test_the_history_of_a_job_that_was_run_again_has_its_failure_and_the_time_of_the_rerun(tmp_path: Path):
    """A retry queues its job at the end of the attempt; a rerun comes later, after a final state."""
    retried = {**marking("a", "exit 3"), "retry": {"on": {"exit": 1}}}
    with (
        served(tmp_path, "--nodes", "2", "--report-format", "json"),
        Manager.of_run(tmp_path, {"log_file": ""}) as manager,
    ):
        manager.submit(Jobs().add_std(retried))
        manager.wait4("a")
        before = time.time()
        assert manager.rerun("a")["rerun"] == 1
        after = time.time()
        manager.wait4("a")
        shown = json.loads(run("qcg-pm", "info", "--json", "--path", tmp_path, "a").stdout)["a"]["transitions"]
    attempt = ["SCHEDULED", "EXECUTING"]
    expected = [*["QUEUED", *attempt] * 2, "FAILED", *["QUEUED", *attempt] * 2, "FAILED"]
    assert [one["state"] for one in shown] == expected
    assert before <= shown[7]["time"] <= after
    (run_dir,) = tmp_path.glob(".qcgpjm-service-*")
    *_, entry = (json.loads(line) for line in (run_dir / "jobs.report").read_text().splitlines())
    assert [one["state"] for one in entry["history"]] == expected
    text = run("qcg-pm", "info", "--path", tmp_path, "a").stdout
    assert re.findall(r": ([A-Z]+)$", text, re.MULTILINE) == expected
    assert [line.split(";")[0].strip() for line in text.splitlines() if line.startswith("    attempt ")] == [
        f"attempt {number}: exit code 3" for number in (1, 2, 3)
    ]


def test_the_asyncio_client_runs_jobs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def scenario() -> None:
        async with AsyncManager() as manager:
            await manager.submit(Jobs().add(name="a", exec="false"))
            await manager.wait4("a")
            assert (await manager.rerun("a"))["rerun"] == 1
            assert await manager.wait4("a") == {"a": "FAILED"}

    monkeypatch.chdir(tmp_path)
    with served(tmp_path, "--nodes", "2"):
        asyncio.run(scenario())
