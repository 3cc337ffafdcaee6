"""`qcg-pm runs` and `qcg-pm clean`."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from qcg.pilotjob.agent.pidfile import write_agent_pid
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.main import main
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.core.effects import Added, Transition
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.model import Execution, JobDescription
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import FILE_REQUESTS_DONE, FILE_REQUESTS_TOTAL
from qcg.pilotjob.runs.chain_state import ChainState, write_chain_state
from qcg.pilotjob.runs.states import age_in_words
from qcg.pilotjob.runs.submissions import Submission, write_submission
from qcg.pilotjob.wire import contact
from tests.cli.test_manager_lookup import make_run
from tests.support.pilot import job, run, write_requests

DAY = 86400


def registry(run_dir: Path, *states: State, requests: tuple[int, int] = (1, 1)) -> Path:
    """A registry with one job in each of these states, and so many requests run of so many."""
    journal = Journal.create(run_dir / "registry.sqlite")
    for number, state in enumerate(states, 1):
        name = f"j{number}"
        one = Job(number, name, msgspec.msgpack.encode(JobDescription(name, Execution(exec="x"))), 100.0)
        journal.record(Added([one]))
        if state is not State.QUEUED:
            journal.record(Transition(one, -1, state, 101.0))
    for key, value in zip((FILE_REQUESTS_DONE, FILE_REQUESTS_TOTAL), requests, strict=True):
        journal.set_metadata(key, value)
    journal.close()
    return run_dir


def aged(run_dir: Path, seconds: float) -> Path:
    for path in (*run_dir.iterdir(), run_dir):
        os.utime(path, (time.time() - seconds,) * 2)
    return run_dir


def new_run(wd: Path, name: str, *states: State, age: float = DAY, **more: Any) -> Path:
    """A run without a manager."""
    run_dir = make_run(wd, name)
    contact.remove(run_dir)
    return aged(registry(run_dir, *states, **more), age)


def crashed_run(wd: Path, name: str, *states: State) -> Path:
    return aged(registry(make_run(wd, name, alive=False), *states), DAY)


def pm(*arguments: str | Path, code: int = 0) -> Result:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="qcg-pm")
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done


def runs_json(wd: Path) -> dict[str, dict[str, Any]]:
    listed = json.loads(pm("runs", wd, "--json").stdout)
    assert listed["directory"] == str(wd)
    return {record["run"].removeprefix(".qcgpjm-service-"): record for record in listed["runs"]}


@pytest.fixture
def one_of_each(tmp_path: Path) -> Path:
    new_run(tmp_path, "ended", State.SUCCEED, State.FAILED, age=3 * DAY)
    new_run(tmp_path, "left", State.SUCCEED, State.QUEUED, State.QUEUED)
    new_run(tmp_path, "unread", State.SUCCEED, requests=(1, 3))
    crashed_run(tmp_path, "crashed", State.SUCCEED, State.QUEUED)
    crashed_run(tmp_path, "died-at-the-end", State.SUCCEED)
    registry(make_run(tmp_path, "live"), State.QUEUED)
    aged(new_run(tmp_path, "damaged"), DAY)
    (tmp_path / ".qcgpjm-service-damaged/registry.sqlite").write_bytes(b"no database" * 1000)
    (tmp_path / ".qcgpjm-service-empty").mkdir()
    aged(tmp_path / ".qcgpjm-service-empty", DAY)
    (tmp_path / ".qcgpjm-service-starting").mkdir()
    return tmp_path


def test_runs_are_listed_with_their_states_jobs_and_ages(one_of_each: Path):
    records = runs_json(one_of_each)
    assert {name: record["state"] for name, record in records.items()} == {
        "ended": "ended",
        "left": "left",
        "unread": "left",
        "crashed": "crashed",
        "died-at-the-end": "ended",
        "live": "live",
        "damaged": "damaged",
        "empty": "empty",
        "starting": "empty",
    }
    assert records["ended"]["jobs"] == {"SUCCEED": 1, "FAILED": 1}
    assert (records["left"]["total_jobs"], records["left"]["jobs_left"]) == (3, 2)
    assert records["left"]["agents_at_work"] is False
    assert records["unread"]["requests_left"] == 2
    assert 3 * DAY <= records["ended"]["age_seconds"] < 3 * DAY + 600
    assert records["live"]["pid"] == os.getpid()
    assert records["live"]["host"] == socket.gethostname()
    assert records["live"]["address"] == "tcp://127.0.0.1:1"
    assert "registry.sqlite" in records["damaged"]["problem"]


def test_the_table_has_the_same_content_and_the_resume_hint(one_of_each: Path):
    done = pm("runs", one_of_each)
    rows = {line.split()[0].removeprefix(".qcgpjm-service-"): line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["run"] == ["state", "jobs", "left", "age"]
    assert rows["ended"] == ["ended", "2", "0", "3", "days", "1", "FAILED"]
    assert rows["left"][:3] == ["left", "3", "2"]
    assert rows["unread"][-4:] == ["2", "requests", "not", "read"]
    assert rows["live"][-5:] == ["tcp://127.0.0.1:1,", "pid", str(os.getpid()), "on", socket.gethostname()]
    assert "To continue the newest unfinished run: `qcg-pm run --resume" in done.stderr


def test_a_directory_without_runs_is_reported(tmp_path: Path):
    assert pm("runs", tmp_path).stdout == f"There are no runs in {tmp_path}.\n"
    assert pm("clean", tmp_path).stdout == "There is nothing to remove.\n"
    assert f"{tmp_path}/missing is not there" in pm("runs", tmp_path / "missing", code=2).stderr
    assert f"{tmp_path}/missing is not there" in pm("-p", tmp_path / "missing", "clean", code=2).stderr


def left_in(wd: Path) -> set[str]:
    return {path.name.removeprefix(".qcgpjm-service-") for path in wd.iterdir()}


def test_clean_removes_ended_runs_and_says_why_it_keeps_others(one_of_each: Path):
    done = pm("clean", one_of_each)
    assert left_in(one_of_each) == {"left", "unread", "crashed", "live", "damaged", "starting"}
    assert "Removed .qcgpjm-service-ended (ended, 2 jobs, 3 days old)\n" in done.stdout
    assert "Kept .qcgpjm-service-left: 2 jobs left; --all removes it.\n" in done.stderr
    assert "Kept .qcgpjm-service-unread: 2 requests left; --all removes it.\n" in done.stderr
    assert "Kept .qcgpjm-service-live: its manager is at work.\n" in done.stderr
    assert "Kept .qcgpjm-service-starting: it may be about to start.\n" in done.stderr


def test_a_dry_run_removes_nothing(one_of_each: Path):
    before = left_in(one_of_each)
    assert "Would remove .qcgpjm-service-ended" in pm("clean", one_of_each, "--dry-run", "--all").stdout
    assert left_in(one_of_each) == before


def test_only_runs_that_are_old_enough_are_removed(one_of_each: Path):
    pm("clean", one_of_each, "--older-than", "2d")
    assert left_in(one_of_each) == {
        *("left", "unread", "crashed", "died-at-the-end", "live", "damaged", "empty", "starting"),
    }


def test_runs_with_jobs_left_are_removed_only_when_that_is_confirmed(one_of_each: Path):
    refused = pm("clean", one_of_each, "--all", code=2)
    assert "--all removes 4 runs with 3 jobs left, which cannot be undone; give --yes too" in refused.stderr
    assert "ended" in left_in(one_of_each)
    pm("clean", one_of_each, "--all", "--yes")
    assert left_in(one_of_each) == {"live", "starting"}


def test_a_run_with_a_live_agent_is_kept(tmp_path: Path):
    run_dir = new_run(tmp_path, "orphaned", State.SUCCEED)
    write_agent_pid(run_dir, "local")
    assert "its agents are at work" in pm("clean", tmp_path, "--all", "--yes").stderr
    assert run_dir.is_dir()


def test_a_live_run_is_listed_and_kept(tmp_path: Path):
    with LocalManager(["--cores", "1", "--wd", str(tmp_path)], {"log_file": ""}) as manager:
        (record,) = runs_json(tmp_path).values()
        assert (record["state"], record["pid"]) == ("live", manager.qcgpm_process.pid)
        assert record["address"] == manager.qcgpm_conf["address"]
        contact.remove(Path(record["directory"]))
        (record,) = runs_json(tmp_path).values()
        assert (record["state"], record["pid"], record["address"]) == ("live", manager.qcgpm_process.pid, None)
        assert "its manager is at work" in pm("clean", tmp_path, "--all", "--yes").stderr
        assert Path(record["directory"]).is_dir()


def test_links_point_to_the_newest_run_that_is_left(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    for name in ("first", "second"):
        done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "1", "--id", name)
        assert done.returncode == 0, done.stderr
    pm("clean", tmp_path / ".qcgpjm-service-second")
    assert (tmp_path / "service.log").readlink() == Path(".qcgpjm-service-first/service.log")
    pm("clean", tmp_path)
    assert left_in(tmp_path) == {"r.json"}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3600, "1 h"),
        (47 * 3600, "47 h"),
        (2 * DAY, "2 days"),
    ],
)
def test_ages_are_shown_in_the_largest_unit(seconds: float, words: str):
    assert age_in_words(seconds) == words


def submitted(run_dir: Path, exit_code: int | None) -> Path:
    """What `qcg-pm sbatch` has left of a run."""
    directory = run_dir.with_name(run_dir.name.replace("-service-", "-sbatch-"))
    directory.mkdir()
    write_submission(directory, Submission("7", str(run_dir), AllocationSpec()))
    write_chain_state(directory, ChainState(["7"], exit_code=exit_code))
    return directory


def test_batch_scripts_go_with_their_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    over = submitted(new_run(tmp_path, "over", State.SUCCEED), 0)
    unknown = submitted(new_run(tmp_path, "unknown", State.SUCCEED), None)
    done = pm("clean", tmp_path, code=1)
    assert not over.exists()
    assert unknown.is_dir()
    assert "unknown was not removed: it is not known whether it still has allocations" in done.stderr
    assert left_in(tmp_path) == {"unknown", unknown.name}
