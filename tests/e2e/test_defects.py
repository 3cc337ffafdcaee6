"""Faults known from other pilots: a bad job that affects others, wrong states, jobs that never end."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.conversation import Conversation, talk
from tests.support.pilot import WAIT, Run, environment, job, run, run_requests, write_requests


def states_of(entry: dict[str, Any]) -> list[str]:
    return [step["state"] for step in entry["history"]]


def test_a_job_that_no_node_can_run_fails_with_a_message_and_the_others_run(tmp_path: Path):
    done = run_requests(
        tmp_path,
        [job("gpu", "true", nodeCrs={"gpu": 1}), job("after-gpu", "true", after=["gpu"])],
        [
            job("wide", "true", numCores=5),
            job("nodes", "true", numNodes=3),
            job("deep", "true", numNodes=1, numCores=3),
        ],
        [job("gpus", "true", iteration=3, nodeCrs={"gpu": 1})],
        [job("good", "true"), job("all", "true", numCores=4)],
        options=("--nodes", "2,2"),
    )
    assert done.done.returncode == 1
    report = done.report
    assert {name: entry["state"] for name, entry in report.items() if ":" not in name} == {
        "gpu": "FAILED",
        "after-gpu": "OMITTED",
        "wide": "FAILED",
        "nodes": "FAILED",
        "deep": "FAILED",
        "gpus": "FAILED",
        "good": "SUCCEED",
        "all": "SUCCEED",
    }
    assert report["gpu"]["messages"] == "1 GPU on a node requested, but no node has that"
    assert report["wide"]["messages"] == "5 cores requested, but only 4 exist"
    assert report["nodes"]["messages"] == "3 nodes requested, but only 2 exist"
    assert "gpu" in report["after-gpu"]["messages"]
    assert states_of(report["gpu"]) == ["QUEUED", "FAILED"]


def test_a_bad_request_among_good_ones_is_refused_whole_and_the_rest_continues(tmp_path: Path):
    done = run_requests(
        tmp_path,
        [job("first", "true")],
        [job("good", "true"), {"name": "bad", "execution": {"exec": "true", "arg": []}}, {"name": "x:y"}],
        {"request": "sumbit", "jobs": []},
        "nonsense",  # not even an object
        [job("good", "true", after=["first"])],
    )
    assert done.done.returncode == 1
    assert done.states == {"first": "SUCCEED", "good": "SUCCEED"}
    refusal = done.replies[1]
    assert refusal["code"] == 1
    assert 'jobs[1].execution.arg: unknown key; did you mean "args"?' in refusal["message"]
    assert "jobs[2]" in refusal["message"], "all that is wrong at once"
    assert 'did you mean "submit"' in done.replies[2]["message"]
    assert "request 4" in done.replies[3]["message"]


def test_the_state_of_an_iterated_job_follows_from_its_iterations(tmp_path: Path):
    done = run_requests(
        tmp_path,
        [
            job("one-fails", iteration={"start": 2, "stop": 6}, script="[ ${it} != 3 ]"),
            job("good", "true", iteration={"values": ["a", "b"]}),
            job("unstartable", "/no/such/program", iteration=2),
            job("after-one", "true", after=["one-fails:4"]),
            job("after-bad-one", "true", after=["one-fails:3"]),
            job("after-whole", "true", after=["one-fails"]),
            job("same", "true", iteration={"start": 2, "stop": 6}, after=["one-fails:${it}"]),
        ],
    )
    report = done.report
    states = done.states
    assert {index: states[f"one-fails:{index}"] for index in range(2, 6)} == {
        2: "SUCCEED",
        3: "FAILED",
        4: "SUCCEED",
        5: "SUCCEED",
    }
    assert states["one-fails"] == "FAILED"
    assert report["one-fails"]["iterations"] == {"total": 4, "succeed": 3, "failed": 1, "canceled": 0, "omitted": 0}
    assert report["one-fails"]["messages"] == "1 of 4 iterations failed"
    assert "exit code 1" in report["one-fails:3"]["messages"]
    assert states_of(report["one-fails:3"]) == ["QUEUED", "SCHEDULED", "EXECUTING", "FAILED"]
    assert states_of(report["one-fails"]) == ["QUEUED", "EXECUTING", "FAILED"]
    dates = [datetime.fromisoformat(step["date"]) for step in report["one-fails:3"]["history"]]
    assert dates == sorted(dates)
    assert states["good"] == states["good:0"] == states["good:1"] == "SUCCEED"
    assert states["unstartable"] == states["unstartable:1"] == "FAILED"
    assert "/no/such/program" in report["unstartable:0"]["messages"]
    assert states["after-one"] == "SUCCEED", "the iteration that it waits for succeeded"
    assert states["after-bad-one"] == states["after-whole"] == "OMITTED"
    assert "one-fails:3" in report["after-bad-one"]["messages"]
    assert {index: states[f"same:{index}"] for index in (2, 3)} == {2: "SUCCEED", 3: "OMITTED"}


@pytest.mark.parametrize(("root", "rest"), [("true", "SUCCEED"), ("false", "OMITTED")])
def test_a_chain_submitted_in_reverse_ends_as_its_root_does(tmp_path: Path, root: str, rest: str):
    chain = [job(f"j{number}", "true", after=[f"j{number + 1}"]) for number in range(30)]
    done = run_requests(tmp_path, [*chain, job("j30", root)], WAIT)
    assert {done.states[f"j{number}"] for number in range(30)} == {rest}
    assert done.done.returncode == (rest != "SUCCEED")


def test_cycles_and_unknown_dependencies_are_refused_by_name(tmp_path: Path):
    done = run_requests(
        tmp_path,
        [job("a", "true", after=["b"]), job("b", "true", after=["c"]), job("c", "true", after=["a"])],
        [job("self", "true", after=["self"])],
        [job("d", "true", after=["nobody"])],
        [job("it", "true", iteration=3), job("e", "true", after=["it:3"])],
        [job("same", "true", iteration=3), job("f", "true", iteration=4, after=["same:${it}"])],
        [job("a", "true"), job("self", "true"), job("it", "true", iteration=1), job("d", "true", after=["it:0"])],
    )
    messages = [reply.get("message", "") for reply in done.replies]
    assert re.search("a.* -> .*b.* -> .*c", messages[0] + messages[0])
    assert "job 'self' waits for itself" in messages[1]
    assert "'d'" in messages[2]
    assert "'nobody'" in messages[2]
    assert "'it'" in messages[3]
    assert "'3'" in messages[3] or "it:3" in messages[3]
    assert "same" in messages[4]
    assert set(done.states.values()) == {"SUCCEED"}
    assert {name for name in done.states if ":" not in name} == {"a", "self", "it", "d"}


def test_a_refused_submission_leaves_no_job_behind(tmp_path: Path):
    async def walk(service: Conversation) -> None:
        wrong: list[tuple[dict[str, Any], Any]] = [
            ({"numCores": {"split-into": 8}}, None),
            ({"numCores": {"scheduler": {"name": "split-into", "params": {"parts": 5}}}}, 5),
            ({"numCores": {"min": 3, "scheduler": {"name": "split-into", "params": {"parts": 2}}}}, 2),
            ({"numCores": {"max": 2, "scheduler": {"name": "maximum-iters"}}}, 2),
            ({"numCores": {"min": 5, "scheduler": {"name": "maximum-iters"}}}, 2),
            ({"numCores": 1}, {"values": []}),
            ({"numCores": 1}, {"start": 3, "stop": 3}),
            ({"numCores": 1}, 0),
            ({"numCores": 1}, []),
        ]
        for resources, iteration in wrong:
            bad = job("phantom", "true", resources=resources, **({} if iteration is None else {"iteration": iteration}))
            reply = await service.ask("submit", jobs=[job("other", "true"), bad])
            assert reply["code"] == 1, (resources, iteration)
            assert "phantom" in reply["message"] or "jobs[1]" in reply["message"]
            assert (await service.data("listJobs"))["length"] == 0, resources
        assert (await service.data("submit", jobs=[job("phantom", "true")]))["submitted"] == 1
        await service.until("phantom", "SUCCEED")

    talk(tmp_path, walk)


def test_an_empty_iteration_is_an_error(tmp_path: Path):
    done = run_requests(tmp_path, [job("a", "true", iteration=[])], [job("b", "true", iterate=[4, 4])]).done
    assert "request 1: jobs[0].iteration: there is no iteration" in done.stderr
    assert "request 2: jobs[0].iterate: there is no iteration" in done.stderr
    assert not (tmp_path / "jobs.report").exists(), "nothing was run"
    assert done.returncode == 1


def test_resources_local_and_a_report_of_no_format_work(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")], WAIT)
    options = ["--wd", str(tmp_path), "--resources", "local", "--report-format", "none"]
    allocation = environment(SLURM_NODELIST="far[1-2]", SLURM_JOB_CPUS_PER_NODE="8(x2)", SLURM_JOB_ID="1")
    done = run("qcg-pm-service", "--file-path", requests, *options, env=allocation)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "jobs.report").exists()
    assert "1 SUCCEED" in (log := (tmp_path / "service.log").read_text())
    assert "far" not in log


def test_exit_codes_show_the_result_of_the_jobs(tmp_path: Path):
    good = write_requests(tmp_path / "good.json", [job("a", "true")], WAIT)
    bad = write_requests(tmp_path / "bad.json", [job("a", "false")], WAIT)
    for command, before in (("qcg-pm", ["run"]), ("qcg-pm-service", ["--file-path"])):
        for file, code in ((good, 0), (bad, 1), (tmp_path / "missing.json", 2)):
            done = run(command, *before, file, "--wd", tmp_path, "--nodes", "1")
            assert done.returncode == code, (command, file)
            assert "Traceback" not in done.stdout + done.stderr
    assert run("qcg-pm-service").returncode == 2
    assert run("qcg-pm").returncode in (0, 2)


@pytest.mark.parametrize("format", ["text", "json"])
def test_the_report_command_shows_every_final_state(tmp_path: Path, format: str):
    requests = write_requests(
        tmp_path / "r.json",
        [
            job("good", "true"),
            job("fails", script="echo '[red]why[/red]' >&2; exit 4", stderr="fails.err"),
            job("omitted", "true", after=["fails"]),
            job("canceled", "sleep", "1000", numCores=4, after=["good"]),
            job("it", "true", iteration=2),
        ],
        {"request": "cancelJob", "jobNames": ["canceled"]},
    )
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "4", "--report-format", format)
    shown = run("qcg-pm", "report", tmp_path)
    assert done.returncode == 1
    assert shown.returncode == 0
    for text in (done.stdout, shown.stdout):
        assert re.search(r"FAILED +1", text)
        assert re.search(r"OMITTED +1", text)
        assert re.search(r"CANCELED +1", text)
        assert "fails FAILED: exit code 4" in text
        assert "    [red]why[/red]" in text
    as_json = json.loads(run("qcg-pm", "report", "--json", tmp_path).stdout)
    assert as_json["jobs"] == {"SUCCEED": 2, "FAILED": 1, "CANCELED": 1, "OMITTED": 1}


def test_the_report_command_shows_runs_of_one_job_and_of_none(tmp_path: Path):
    one, none = tmp_path / "one", tmp_path / "none"
    one.mkdir()
    none.mkdir()
    assert Run(one, run_requests(one, [job("only", "true")]).done).states == {"only": "SUCCEED"}
    empty = run_requests(none)
    assert (empty.done.returncode, empty.states) == (0, {})
    for directory, said in ((one, "SUCCEED"), (none, "Run ")):
        shown = run("qcg-pm", "report", directory)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert said in shown.stdout
    nothing = run("qcg-pm", "report", tmp_path)
    assert nothing.returncode == 2
    assert "There is no run in" in nothing.stderr
