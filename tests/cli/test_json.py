"""The output of `--json`: numbers are numbers, keys are in snake_case, and old keys are kept."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.cli.json_records import NEW_NAMES, job_information, renamed
from qcg.pilotjob.cli.main import main
from tests.cli.conftest import Pm
from tests.support.pilot import job, run, write_requests
from tests.support.waiting import wait_for

Told = Callable[..., Any]
ROOT = Path(__file__).parent.parent.parent
SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def validate(path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(main, ["validate", str(path), "--json", *options])
    return done.exit_code, json.loads(done.stdout)


def test_validate_json_has_problems_and_warnings(tmp_path: Path):
    good = write_requests(tmp_path / "good.json", [job("a", "true")])
    assert validate(good, "--nodes", "2x4") == (
        0,
        {
            "file": str(good),
            "valid": True,
            "requests": 1,
            "jobs": 1,
            "nodes": 2,
            "cores": 8,
            "problems": [],
            "warnings": [],
        },
    )
    bad = write_requests(tmp_path / "bad.json", [job("a", "sleep 10", numCores=9), job("b", "true", numCores=1)])
    code, told = validate(bad, "--cores", "8")
    assert (code, told["valid"], told["jobs"]) == (1, False, 2)
    assert [problem for problem in told["problems"] if "9 cores" in problem]
    assert len(told["warnings"]) == 1


def test_run_prints_one_object_and_nothing_else(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("good", "true"), job("bad", script="exit 3")])
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "1", "--json", "--id", "x")
    told = json.loads(done.stdout)
    assert done.returncode == told["exit_code"] == 1
    assert told["directory"] == str(tmp_path / ".qcgpjm-service-x")
    assert told["jobs"] == told["report"]["jobs"] == {"SUCCEED": 1, "FAILED": 1}
    assert (told["jobs_left"], told["resume"], told["refusals"], told["trouble"]) == (0, None, [], None)
    (failure,) = told["report"]["failures"]
    assert (failure["name"], failure["exit_code"]) == ("bad", 3)


def test_run_json_has_the_refusals(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "true", after=["nobody"])])
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "1", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["exit_code"], told["directory"], told["report"]) == (1, 1, None, None)
    (refusal,) = told["refusals"]
    assert "'nobody'" in refusal


def test_run_json_has_the_resume_command(tmp_path: Path):
    script = "touch began; until [ -e go ]; do sleep 0.02; done"
    requests = write_requests(tmp_path / "r.json", [job("endless", script=script)])
    limits = ("--time-limit", "1s", "--grace", "0.5")
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "1", "--json", "--id", "x", *limits)
    told = json.loads(done.stdout)
    assert (done.returncode, told["exit_code"], told["jobs_left"]) == (4, 4, 1)
    assert told["resume"] == f"qcg-pm run --resume {tmp_path}/.qcgpjm-service-x"


def test_status_json_has_counts_and_times_in_seconds(pm: Pm, pm_json: Told, wd: Path):
    pm("submit", "--name", "its", "--iteration", "2", "--wait", "--", "bash", "-c", "exit $1", "-", "${it}", code=1)
    told = pm_json("status")
    assert told["manager"]["wd"] == str(wd)
    assert told["manager"]["interfaces"] == ["network"]
    assert 0 <= told["manager"]["uptime"] < 3600
    assert told["manager"]["started"] > 1_600_000_000
    assert told["resources"] == {"total_nodes": 1, "total_cores": 2, "used_cores": 0, "free_cores": 2}
    none = {"waiting": 0, "running": 0, "canceled": 0, "omitted": 0}
    assert told["jobs"] == {"total": 1, "succeeded": 0, "failed": 1, **none}
    assert told["iterations"] == {"total": 2, "succeeded": 1, "failed": 1, **none}
    assert told["JobStats"]["TotalJobs"] == 1


def test_info_gives_numbers_as_numbers(pm: Pm, pm_json: Told):
    pm("submit", "--name", "its", "--iteration", "2", "--wait", "--", "bash", "-c", "exit $1", "-", "${it}", code=1)
    told = pm_json("info", "its", "its:1", "-i")
    one = told["its:1"]
    assert (one["name"], one["state"], one["message"]) == ("its:1", "FAILED", "exit code 1")
    assert (one["jobName"], one["status"], one["messages"]) == ("its:1", "FAILED", "exit code 1")
    assert one["runtime"]["exit_code"] == 1
    assert isinstance(one["runtime"]["pid"], int)
    assert 0 < one["runtime"]["run_seconds"] < 60
    assert [entry["state"] for entry in one["transitions"]][-2:] == ["EXECUTING", "FAILED"]
    assert all(entry["time"] > 1_600_000_000 for entry in one["transitions"])
    children = told["its"]["children"]
    assert [(child["iteration"], child["runtime"]["exit_code"]) for child in children] == [(0, 0), (1, 1)]
    assert told["its"]["childs"] == children


def test_jobs_and_why_have_both_names(pm: Pm, pm_json: Told):
    pm("submit", "--name", "bad", "--wait", "--", "bash", "-c", "echo oops >&2; exit 3", code=1)
    assert pm_json("jobs")["jobs"]["bad"] == {
        "state": "FAILED",
        "status": "FAILED",
        "message": "exit code 3",
        "messages": "exit code 3",
    }
    told = pm_json("why", "bad")["bad"]
    assert (told["name"], told["state"], told["exit_code"], told["last_lines"]) == ("bad", "FAILED", 3, ["oops"])
    assert (told["jobName"], told["status"], told["exitCode"], told["lastLines"]) == ("bad", "FAILED", 3, ["oops"])


PAUSED = '{"max": 1, "on": ["exit"], "delay": 3600}'


def test_earlier_attempts_have_numbers_and_times_in_seconds(pm: Pm, pm_json: Told):
    before = time.time()
    again = ("--retry", "1", "--mem", "100MB")
    pm("submit", "--name", "its", "--iteration", "1", *again, "--wait", "--", "bash", "-c", "exit 3", code=1)
    told = pm_json("info", "its:0", "its", "-i")
    (attempt,) = told["its:0"]["attempts"]
    assert (attempt["attempt"], attempt["cause"], attempt["exit_code"]) == (1, "exit", 3)
    assert attempt["message"] == attempt["messages"] == "exit code 3"
    assert before - 1 < attempt["started"] < attempt["ended"] < time.time() + 1
    assert attempt["run_seconds"] == pytest.approx(attempt["ended"] - attempt["started"], abs=1e-5)
    counts = ("max_memory", "requested_memory", "minor_faults", "major_faults", "read_bytes", "written_bytes")
    assert all(type(attempt[key]) is int for key in counts)
    assert attempt["requested_memory"] == 100 << 20
    assert type(attempt["cpu_efficiency"]) is float
    assert 0 < attempt["cpu_seconds"] < 60
    (child,) = told["its"]["children"]
    assert child["attempts"] == [attempt]


def test_held_and_paused_jobs_have_times_in_seconds(pm: Pm, pm_json: Told):
    before = time.time()
    pm("submit", "--name", "held", "--hold", "--", "true")
    pm("submit", "--name", "paused", "--retry", PAUSED, "--", "false")
    wait_for(lambda: pm_json("why", "paused")["paused"]["reason"] == "retry", what="the pause")
    since = pm_json("jobs")["jobs"]["held"]["held_since"]
    assert before - 1 < since < time.time() + 1
    info, explained = pm_json("info", "held")["held"], pm_json("why", "held", "paused")
    assert info["held_since"] == since
    assert explained["held"]["since"] == int(since)  # times of explanations are for people: whole seconds
    assert datetime.fromisoformat(info["heldSince"]).timestamp() == since
    assert before + 3000 < explained["paused"]["until"] < before + 4000


def test_drained_nodes_have_times_in_seconds(pm: Pm, pm_json: Told):
    before = time.time()
    pm("nodes", "drain", "n1", "--reason", "since yesterday")
    try:
        drained = pm_json("resources")["drained"]
        status = pm_json("status")
    finally:
        pm("nodes", "resume", "n1")
    assert before - 1 < drained["n1"]["since"] < time.time() + 1
    assert drained["n1"]["reason"] == "since yesterday"
    assert status["resources"]["drained"] == drained
    assert datetime.fromisoformat(status["Resources"]["Drained"]["n1"]["since"]).timestamp() == drained["n1"]["since"]


def test_hosts_that_do_not_answer_to_a_cancellation_have_times_in_seconds(
    pm: Pm, pm_json: Told, monkeypatch: pytest.MonkeyPatch
):
    pm("submit", "--name", "since", "--hold", "--", "true")
    away = {"wizard": {"jobs": ["since"], "since": "2026-11-17 22:52:35.250000"}}
    reply = {"canceled": 1, "errors": {"since": "a sentence"}, "unreachable": away}
    monkeypatch.setattr(Manager, "cancel", lambda self, names: reply)
    told = pm_json("cancel", "since", code=1)
    monkeypatch.undo()
    moment = datetime(2026, 11, 17, 22, 52, 35, 250000).timestamp()
    assert told == {**reply, "unreachable": {"wizard": {"jobs": ["since"], "since": moment}}}


def test_values_of_users_keep_their_names_and_texts():
    values = {"status": "solid", "since": "yesterday"}
    assert renamed({"itval": values, "named": values}) == {"itval": values, "named": values}


def test_the_expected_start_is_in_seconds():
    told = renamed({"first": {"expected": {"at": "2026-11-17 22:52:35.250000", "node": "n1"}}})
    moment = datetime(2026, 11, 17, 22, 52, 35, 250000).timestamp()
    assert told == {"first": {"expected": {"at": moment, "node": "n1"}}}


def test_old_names_get_new_ones_at_any_depth():
    told = renamed({"jobName": "a", "first": {"exitCode": 1, "after": [{"name": "b", "status": "FAILED"}]}})
    assert told["name"] == "a"
    assert told["first"]["exit_code"] == 1
    assert told["first"]["after"] == [{"name": "b", "state": "FAILED", "status": "FAILED"}]


def test_a_job_that_has_not_started_has_no_runtime_and_no_children():
    told = job_information({"jobName": "a", "status": "QUEUED", "history": "\n2026-11-17 22:52:35.393909: QUEUED"})
    assert "runtime" not in told
    assert "children" not in told
    assert [entry["state"] for entry in told["transitions"]] == ["QUEUED"]


def keys_of(data: Any) -> set[str]:
    if isinstance(data, list):
        return {key for entry in data for key in keys_of(entry)}
    if not isinstance(data, dict):
        return set()
    return set(data) | {key for value in data.values() for key in keys_of(value)}


def test_every_field_is_in_snake_case_and_in_the_documents(pm: Pm, pm_json: Told, tmp_path: Path):
    pm("submit", "--name", "bad", "--iteration", "1", "--wait", "--", "bash", "-c", "echo oops >&2; exit 3", code=1)
    told: list[Any] = [
        pm_json("jobs")["jobs"]["bad"],
        pm_json("info", "bad", "-i")["bad"],
        pm_json("why", "bad")["bad"],
    ]
    pm("submit", "--name", "paused", "--retry", PAUSED, "--priority", "3", "--mem", "100MB", "--", "false")
    pm("submit", "--name", "held", "--hold", "--", "true")
    wait_for(lambda: pm_json("why", "paused")["paused"]["reason"] == "retry", what="the pause")
    told += [pm_json(command, name)[name] for command in ("info", "why") for name in ("paused", "held")]
    told += [pm_json("jobs")["jobs"]["held"], pm_json("rerun", "bad")]
    assert {"attempts", "priority", "held_since", "until", "rerun"} <= keys_of(told)
    status = pm_json("status")
    told += [status[key] for key in ("manager", "resources", "jobs", "iterations")]
    told += pm_json("runs")["runs"]
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    told.append(json.loads(run("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "1", "--json").stdout))
    told.append(validate(requests)[1])
    states = {"QUEUED", "SCHEDULED", "EXECUTING", "SUCCEED", "FAILED", "CANCELED", "OMITTED"}
    found = keys_of(told) - set(NEW_NAMES) - states
    assert {key for key in found if not SNAKE_CASE.fullmatch(key)} == set()
    text = (ROOT / "docs/reference/commands.md").read_text()
    documented = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text.partition("## JSON output")[2]))))
    assert found - documented == set()
