"""Behaviour that programs and request files for version 0.14 rely on, as the tests of that version state it.

Not kept: its wording of errors, its limit of 65,536 iterations, second calls of `shutdown` as an error, an empty list
of names as an error, unknown schedulers as the default one, and FAILED as the state of an iterated job of which
iterations were only cancelled or omitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.api.errors import ConnectionError, InvalidJobDescriptionError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from tests.support.pilot import run, write_requests

FINISH = {"request": "control", "command": "finishAfterAllTasksDone"}


# -- jobs that are cancelled ----------------------------------------------------------------------------------------


@pytest.fixture
def manager(run_dir: Path) -> Iterator[LocalManager]:
    manager = LocalManager(["--wd", str(run_dir), "--nodes", 2, "--log", "debug"], {"wdir": str(run_dir)})
    yield manager
    manager.finish()
    manager.cleanup()


def states_of(manager: LocalManager, name: str) -> dict[int, str]:
    """The states of all iterations; the counts of the job have to agree with them."""
    info = manager.info_parsed(name, withChilds=True)[name]
    states = {child.iteration: child.status for child in info.childs if child.iteration is not None}
    assert info.iterations is not None
    assert [child.name for child in info.childs] == [f"{name}:{index}" for index in states]
    assert list(states) == list(range(info.iterations["start"], info.iterations["stop"]))
    assert info.iterations["total"] == info.iterations["finished"] == len(states)
    assert info.iterations["failed"] == sum(state != "SUCCEED" for state in states.values())
    assert all(child.total_cores == 1 for child in info.childs if child.status == "SUCCEED")
    return states


@pytest.mark.parametrize(
    ("iteration", "cancelled", "succeeded"),
    [
        pytest.param({"start": 0, "stop": 4}, ["it:2", "it:3"], [0, 1], id="queued iterations"),
        pytest.param({"start": 0, "stop": 4}, ["it:0", "it:1"], [2, 3], id="running iterations"),
        pytest.param({"start": 0, "stop": 2}, ["it"], [], id="a job that runs"),
        pytest.param({"start": 2, "stop": 12}, ["it"], [], id="a job of which most iterations wait"),
    ],
)
def test_iterations_that_are_cancelled_count_as_failed(
    manager: LocalManager, run_dir: Path, iteration: dict[str, int], cancelled: list[str], succeeded: list[int]
):
    (name,) = manager.submit(
        Jobs().add(name="it", script="until [ -e go ]; do sleep 0.02; done", iteration=iteration, stdout="${it}.out")
    )
    manager.cancel(cancelled)
    manager.wait4(cancelled)
    (run_dir / "go").touch()
    assert manager.wait4(manager.list()) == {name: "CANCELED"}
    assert states_of(manager, name) == {
        index: "SUCCEED" if index in succeeded else "CANCELED" for index in range(iteration["start"], iteration["stop"])
    }
    manager.remove(name)
    assert manager.list() == {}


@pytest.mark.parametrize(("cancelled", "lost"), [(["a:3", "a:4"], {3, 4}), (["a"], {2, 3, 4, 5})])
def test_dependents_of_a_cancelled_iteration_are_omitted(
    manager: LocalManager, run_dir: Path, cancelled: list[str], lost: set[int]
):
    jobs = Jobs().add(name="a", script="until [ -e go ]; do sleep 0.02; done", iteration={"start": 2, "stop": 6})
    for name, before in (("b", "a"), ("c", "b")):
        jobs.add(name=name, exec="true", iteration={"start": 2, "stop": 6}, after=[before + ":${it}"])
    manager.submit(jobs)
    manager.cancel(cancelled)
    manager.wait4(cancelled)
    (run_dir / "go").touch()
    final = {"a": "CANCELED", "b": "OMITTED", "c": "OMITTED"}
    assert manager.wait4(manager.list()) == final
    for name, state in final.items():
        assert states_of(manager, name) == {index: state if index in lost else "SUCCEED" for index in range(2, 6)}


def test_a_job_after_a_cancelled_one_is_omitted(manager: LocalManager):
    ids = manager.submit(Jobs().add(name="j1", exec="sleep", args=["60s"]).add(name="j2", exec="true", after=["j1"]))
    manager.cancel(["j1"])
    assert manager.wait4(manager.list()) == {"j1": "CANCELED", "j2": "OMITTED"}
    assert {name: info.status for name, info in manager.info_parsed(ids).items()} == {"j1": "CANCELED", "j2": "OMITTED"}


def test_names_of_no_job_or_iteration_are_answered_on_their_own(manager: LocalManager):
    manager.submit(Jobs().add(name="it", exec="true", iteration=2))
    wrong = ["it:2:1", "it:", "it:7", "it:x", "other"]
    for request in ("jobStatus", "jobInfo"):
        jobs = manager.send_request({"request": request, "jobNames": ["it:0", *wrong]})["data"]["jobs"]
        assert [name for name, answer in jobs.items() if answer["status"] == 0] == ["it:0"]
        assert [name for name, answer in jobs.items() if answer.get("message")] == wrong
    for request in ("cancelJob", "removeJob"):
        assert list(manager.send_request({"request": request, "jobNames": wrong})["data"]["errors"]) == wrong


# -- requests and descriptions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        {"notARequestElement": "some value"},
        {"request": ["submit"]},
        {"request": "some unknown request"},
        {"request": "control"},
        {"request": "control", "command": "unknown command"},
        {"request": "submit"},
        *({"request": "submit", "jobs": jobs} for jobs in (None, "not a list", [], ["not a dictionary"])),
        {"request": "submit", "jobs": [{"execution": {"exec": "date"}}]},
        {"request": "submit", "jobs": [{"name": "date"}]},
        *({"request": name} for name in ("jobStatus", "jobInfo", "cancelJob", "removeJob")),
        {"request": "register", "entity": "manager", "params": {"id": "m", "address": "a", "resources": {"nodes": 2}}},
        {"request": "notify", "entity": "job", "params": {"name": "j", "state": "SUCCEED", "attributes": {}}},
    ],
    ids=str,
)
def test_a_wrong_request_is_a_connection_error_and_the_service_continues(
    shared_manager: LocalManager, request_: dict[str, Any]
):
    with pytest.raises(ConnectionError, match="Request failed - "):
        shared_manager.send_request(request_)
    assert shared_manager.resources() == {"total_nodes": 2, "total_cores": 6, "used_cores": 0, "free_cores": 6}
    assert shared_manager.list() == {}


@pytest.fixture(scope="module")
def shared_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalManager]:
    wd = tmp_path_factory.mktemp("shared")
    with LocalManager(["--wd", wd, "--nodes", "3,3"], {"wdir": wd}) as manager:
        yield manager


EXECUTION = {"exec": "/bin/date"}


@pytest.mark.parametrize(
    "job",
    [
        {"name": ":job1"},
        {"name": "j1:1"},
        {"execution": None},
        {"execution": {}},
        {"execution": {"exec": None, "stdout": "out"}},
        {"execution": {"stdout": "out"}},
        {"execution": {"exec": "/bin/date", "script": "date"}},
        {"execution": {"script": "date", "args": ["1"]}},
        {"execution": {"exec": "/bin/date", "args": "no list"}},
        {"execution": {"exec": "/bin/date", "env": ["no object"]}},
        {"execution": {"exec": "/bin/date", "env": "no object"}},
        {"iteration": {"start": 2, "stop": 1}},
        {"iteration": {"start": 2}},
        {"iteration": {"stop": -2}},
        {"iteration": {"stop": 2, "values": [1]}},
        {"iteration": "some number"},
        {"iteration": {}},
        {"iteration": {"iterations": 5}},
        {"iteration": {"start": 5, "stop": 5}},
        {"iteration": {"start": 5, "stop": 0, "step": 2}},
        {"attributes": "no object"},
        {"attributes": ["no object"]},
        {"dependencies": [{"after": ["job2"]}]},
        {"dependencies": {"whenever": "job2"}},
        {"dependencies": {"after": {"job": "job2"}}},
        {"dependencies": {"after": ["job2", ["job3", "job4"]]}},
        {"resources": ["numNodes"]},
        *({"resources": {"numNodes": amount}} for amount in ({}, [1], {"exact": "1"}, {"unknown": 1})),
        *({"resources": {"numCores": {name: 2, "scheduler": "split-into"}}} for name in ("exact", "max")),
        *(
            {"resources": {"numCores": amount}}
            for amount in ({}, [1], -2, {"min": -2}, {"max": -2}, {"min": 4, "max": 3})
        ),
        *({"resources": {"numCores": {"exact": 2, other: 1}}} for other in ("min", "max", "unknown")),
        {"resources": {"numCores": 2, "nodeCrs": []}},
        *({"resources": {"numCores": 2, "nodeCrs": crs}} for crs in ({"gpu": -1}, {"gpu": 0}, {"other": 1})),
        *({"resources": {"numCores": 2, "nodeCrs": crs}} for crs in ({"gpu": "1"}, {"mem": "one"})),
        *({"resources": {"numCores": 2, "nodeCrs": {"gpu": 1, **crs}}} for crs in ({"GpU": 2}, {"mem": 2, "GpU": 2})),
        *({"resources": {"numCores": 2, "wt": wt}} for wt in ("", "0", "0s", "two hours", "-10", "-10s")),
    ],
    ids=str,
)
def test_a_wrong_description_is_refused_and_a_right_one_is_not(job: dict[str, Any]):
    right = {"name": "job1", "execution": EXECUTION}
    with pytest.raises(InvalidJobDescriptionError):
        Jobs().add_std({**right, **job})
    assert Jobs().add_std(right).job_names() == ["job1"]


@pytest.mark.parametrize(
    "attributes",
    [
        {"exec": 2},
        {"args": {"1": "one"}},
        {"script": "date"},
        {"unknownAttribute": True},
        *({key: {"unknownAttr": 1}} for key in ("numCores", "numNodes", "iteration")),
        *({key: {"exact": "1"}} for key in ("numCores", "numNodes")),
        *({"iteration": iteration} for iteration in ("some number", -1, {"start": 2, "stop": 1}, {"stop": -2})),
    ],
    ids=str,
)
def test_a_wrong_simple_description_is_refused(attributes: dict[str, Any]):
    with pytest.raises(InvalidJobDescriptionError):
        Jobs().add({"name": "job1", "exec": "/bin/date", **attributes})


@pytest.mark.parametrize(
    "job",
    [
        *({"resources": {"numCores": amount}} for amount in (2, {"exact": 2}, {"min": 2, "max": 3}, {"min": 2})),
        {"resources": {"numCores": {"max": 2}}},
        *({"resources": {"numCores": 2, "nodeCrs": crs}} for crs in ({"GpU": 1}, {"meM": 1, "gPU": 2})),
        *(
            {"resources": {"numCores": {"scheduler": {"name": name}}}, "iteration": {"stop": 3}}
            for name in ("maximum-iters", "MAXIMUM-ITERS", "split-into", "SpliT-Into")
        ),
        *({"resources": {"numCores": 2, "wt": wt}} for wt in ("10m", "24h", "24h10m5s")),
        {"resources": {"numCores": {"min": 2, "max": 4}, "numNodes": {"min": 1, "max": 2}, "nodeCrs": {"gpu": 1}}},
        {"execution": {"script": "#!/bin/bash\n/bin/date\n"}},
        {"execution": {**EXECUTION, "modules": ["python/3.6"], "stdin": "in", "stdout": "out", "stderr": "err"}},
        {"dependencies": {"after": []}},
        {"execution": {**EXECUTION, "modules": "python/3.6", "model": "OpenMPI", "model_opts": {}}},
        {"iteration": {"values": ["a", "b"]}, "attributes": {"a1": True}, "dependencies": {"after": ["other"]}},
    ],
    ids=str,
)
def test_every_form_of_a_description_is_taken(job: dict[str, Any]):
    assert Jobs().add_std({"name": "job1", "execution": EXECUTION, **job}).job_names() == ["job1"]


# -- request files --------------------------------------------------------------------------------------------------


def serve(directory: Path, *requests: Any, nodes: str = "4") -> dict[str, dict[str, Any]]:
    """The entries of the report, by name, after a run in the manner of version 0.14."""
    path = write_requests(directory / "requests.json", *requests)
    options = ["--log", "debug", "--nodes", nodes, "--report-format", "json"]
    run("qcg-pm-service", "--file", "--file-path", path, "--wd", directory, *options)
    (report,) = directory.glob(".qcgpjm-service-*/jobs.report")
    entries = [json.loads(line) for line in report.read_text().splitlines()]
    assert len({entry["name"] for entry in entries}) == len(entries)
    return {entry["name"]: entry for entry in entries}


def moment(entry: dict[str, Any], state: str) -> datetime:
    (date,) = [change["date"] for change in entry["history"] if change["state"] == state]
    return datetime.strptime(date, "%Y-%m-%dT%H:%M:%S.%f")


@pytest.mark.parametrize(("nodes", "cores"), [("2", 1), ("3", 2), ("2,2", 2)])
def test_iterations_write_to_their_own_directories_and_are_reported(tmp_path: Path, nodes: str, cores: int):
    jobs = [
        {
            "name": name,
            "iteration": {"start": 0, "stop": 5},
            "execution": {
                "exec": "/bin/echo",
                "args": ["iteration ${it}"],
                "wd": f"{tmp_path}/{name}_$${{it}}",
                "stdout": "out",
                "stderr": "err",
            },
            "resources": {"numCores": {"exact": size}},
        }
        for name, size in (("big", cores), ("small", 1))
    ]
    report = serve(tmp_path, jobs, FINISH, nodes=nodes)
    for name, size in (("big", cores), ("small", 1)):
        assert report[name]["state"] == "SUCCEED"
        for index in range(5):
            entry = report[f"{name}:{index}"]
            assert entry["state"] == "SUCCEED"
            assert entry["runtime"]["allocation"].count(":") + entry["runtime"]["allocation"].count("[") == size
            assert datetime.strptime(entry["runtime"]["rtime"], "%H:%M:%S.%f")
            assert moment(entry, "EXECUTING") <= moment(entry, "SUCCEED")
            assert (tmp_path / f"{name}_{index}/out").read_text() == f"iteration {index}\n"
            assert (tmp_path / f"{name}_{index}/err").read_text() == ""
    assert len(report) == 12


def test_as_many_iterations_run_at_once_as_there_are_cores(tmp_path: Path):
    execution = {"exec": "sleep", "args": ["0.3s"], "wd": f"{tmp_path}/$${{it}}", "stdout": "out", "stderr": "err"}
    job = {"name": "it", "iteration": {"stop": 6}, "execution": execution, "resources": {"numCores": {"exact": 2}}}
    report = serve(tmp_path, [job], FINISH, nodes="4")
    assert len(report) == 7
    spans = [
        (moment(report[f"it:{index}"], "EXECUTING"), moment(report[f"it:{index}"], "SUCCEED")) for index in range(6)
    ]
    assert all((end - begin).total_seconds() >= 0.3 for begin, end in spans)
    running = [sum(begin <= moment < end for begin, end in spans) for moment, _ in spans]
    assert max(running) == 2, running
    assert [(tmp_path / str(index) / "out").exists() for index in range(6)] == [True] * 6


def test_jobs_of_a_workflow_run_one_after_the_other(tmp_path: Path):
    def job(name: str, *after: str) -> dict[str, Any]:
        execution = {"exec": "sleep", "args": ["0.05s"], "wd": f"{name}.sandbox", "stdout": "out", "stderr": "err"}
        return {"name": name, "execution": execution, "dependencies": {"after": list(after)}}

    report = serve(tmp_path, [job("first"), job("second", "first"), job("third", "first", "second")], FINISH)
    assert [entry["state"] for entry in report.values()] == ["SUCCEED"] * 3
    for earlier, later in (("first", "second"), ("second", "third")):
        assert moment(report[earlier], "SUCCEED") <= moment(report[later], "EXECUTING")
        assert (tmp_path / f"{later}.sandbox/out").exists()


def sandboxed(name: str, sandbox: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "execution": {"exec": "date", "wd": sandbox, "stdout": "out"}, **more}


@pytest.mark.parametrize(
    ("requests", "ran"),
    [
        pytest.param([[sandboxed("a", "one"), sandboxed("a", "two")]], [], id="one name twice in a request"),
        pytest.param([[sandboxed("a", "one")], [sandboxed("a", "two")]], ["one"], id="one name in two requests"),
        pytest.param([[sandboxed("a", "one", dependencies={"after": ["nobody"]})]], [], id="an unknown dependency"),
    ],
)
def test_a_submission_that_is_refused_runs_nothing(tmp_path: Path, requests: list[Any], ran: list[str]):
    path = write_requests(tmp_path / "requests.json", *requests, FINISH)
    run("qcg-pm-service", "--file", "--file-path", path, "--nodes", "2", "--wd", tmp_path)
    assert [name for name in ("one", "two") if (tmp_path / name).exists()] == ran
