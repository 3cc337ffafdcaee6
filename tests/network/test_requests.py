"""Every request and its reply, over a real socket, with a client that uses only pyzmq."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.support.pilot import job
from tests.support.serving import Bare, Served, served
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("run"), "--nodes", "n1:2,n2:2") as service:
        yield service


@pytest.fixture(params=[zmq.REQ, zmq.DEALER], ids=["REQ", "DEALER"])
def client(service: Served, request: pytest.FixtureRequest) -> Iterator[Bare]:
    with service.client(request.param) as client:
        yield client
        names = list(client.ask("listJobs")["data"]["jobs"])
        client.ask("cancelJob", jobNames=names)
        wait_for(lambda: client.ask("status", options={"allJobsFinished": True})["data"]["AllJobsFinished"])
        client.ask("removeJob", jobNames=names)


def until(client: Bare, name: str, state: str) -> None:
    def has_state() -> bool:
        return bool(client.ask("jobStatus", jobNames=[name])["data"]["jobs"][name]["data"]["status"] == state)

    wait_for(has_state, what=f"{name} to be {state}")


def test_submit_answers_with_the_names(client: Bare):
    jobs = [job("a", "true"), {"name": "b_${it}", "iterate": [1, 3], "exec": "true"}]
    assert client.ask("submit", jobs=jobs) == {
        "code": 0,
        "message": "3 jobs submitted",
        "data": {"submitted": 3, "jobs": ["a", "b_1", "b_2"]},
    }


def test_a_submission_with_one_invalid_job_is_refused_with_the_path_of_the_error(client: Bare):
    reply = client.ask("submit", jobs=[job("a", "true"), {"name": "b", "execution": {"exec": "true", "arg": ["x"]}}])
    assert reply["code"] != 0
    assert 'jobs[1].execution.arg: unknown key; did you mean "args"?' in reply["message"]
    assert client.ask("listJobs")["data"] == {"length": 0, "jobs": {}}


def test_list_jobs_returns_states_and_positions_in_the_queue(client: Bare):
    client.ask(
        "submit", jobs=[job("big", "sleep", "60", numCores={"exact": 4}), job("first", "true"), job("second", "true")]
    )
    until(client, "big", "EXECUTING")
    assert client.ask("listJobs") == {
        "code": 0,
        "data": {
            "length": 3,
            "jobs": {
                "big": {"status": "EXECUTING"},
                "first": {"status": "QUEUED", "inQueue": 0},
                "second": {"status": "QUEUED", "inQueue": 1},
            },
        },
    }


def test_job_status_returns_a_state_or_an_error_for_each_name(client: Bare):
    client.ask("submit", jobs=[job("a", "false")])
    until(client, "a", "FAILED")
    jobs = client.ask("jobStatus", jobNames=["a", "nobody"])["data"]["jobs"]
    assert jobs["a"] == {"status": 0, "data": {"jobName": "a", "status": "FAILED"}}
    assert jobs["nobody"]["status"] != 0
    assert jobs["nobody"]["message"] == "there is no job 'nobody'"


def test_job_info_returns_all_details_of_a_job(client: Bare, service: Served):
    began = time.monotonic()
    client.ask("submit", jobs=[job("a", "sleep", "0.1", wd="in/here", numCores={"exact": 2}, numNodes={"exact": 2})])
    until(client, "a", "SUCCEED")
    took = time.monotonic() - began
    info = client.ask("jobInfo", jobNames=["a"])["data"]["jobs"]["a"]["data"]
    runtime = info["runtime"]
    assert (info["jobName"], info["status"]) == ("a", "SUCCEED")
    assert runtime["allocation"] == "n1[0:1],n2[0:1]"
    assert runtime["wd"] == str(service.wd / "in/here")
    assert (runtime["exit_code"], runtime["pname"]) == ("0", "sleep")
    assert runtime["command"] == "sleep 0.1"
    assert re.fullmatch(r"0:00:\d\d\.\d{6}", runtime["rtime"])
    assert 0.1 <= float(runtime["rtime"].rpartition(":")[2]) < took
    assert int(runtime["pid"]) > 1
    assert info["resources"] == {"numCores": {"exact": 2}, "numNodes": {"exact": 2}}
    assert "dependencies" not in info
    assert "retry" not in info
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}"
    states = "".join(rf"\n{stamp}: {state}" for state in ("QUEUED", "SCHEDULED", "EXECUTING", "SUCCEED"))
    assert re.fullmatch(states, info["history"])


def test_job_info_returns_iterations(client: Bare):
    client.ask("submit", jobs=[job("it", "sh", "-c", "exit $((${it} == 3))", iteration={"start": 2, "stop": 5})])
    until(client, "it", "FAILED")
    info = client.ask("jobInfo", jobNames=["it"], params={"withChilds": True})["data"]["jobs"]["it"]["data"]
    counts = {"start": 2, "stop": 5, "total": 3, "finished": 3, "failed": 1}
    assert {key: info["iterations"][key] for key in counts} == counts
    assert [(child["iteration"], child["state"]) for child in info["childs"]] == [
        (2, "SUCCEED"),
        (3, "FAILED"),
        (4, "SUCCEED"),
    ]
    assert all(child["runtime"]["allocation"] for child in info["childs"])
    assert "1 of 3 iterations failed" in info["messages"]
    assert "childs" not in client.ask("jobInfo", jobNames=["it"])["data"]["jobs"]["it"]["data"]


def test_job_info_returns_iterations_that_never_started(client: Bare):
    """`failed` counts each that ended without success, whatever its final state is."""

    def told(name: str) -> tuple[dict[str, int], list[tuple[int, str]]]:
        info = client.ask("jobInfo", jobNames=[name], params={"withChilds": True})["data"]["jobs"][name]["data"]
        never_began.update({f"{name}:{child['iteration']}": child for child in info["childs"] if not child["runtime"]})
        counts = {key: info["iterations"][key] for key in ("total", "finished", "failed")}
        return counts, [(child["iteration"], child["state"]) for child in info["childs"]]

    never_began: dict[str, dict] = {}
    script = "[ ${it} = 2 ] && exit 3; sleep 60"
    wide = {"numCores": {"exact": 4}, "iteration": {"start": 2, "stop": 6}}
    client.ask(
        "submit",
        jobs=[job("it", "sh", "-c", script, **wide), job("later", "true", after=["it"], iteration={"stop": 2})],
    )
    until(client, "it:3", "EXECUTING")
    states = [(2, "FAILED"), (3, "EXECUTING"), (4, "QUEUED"), (5, "QUEUED")]
    assert told("it") == ({"total": 4, "finished": 1, "failed": 1}, states)
    assert told("later") == ({"total": 2, "finished": 0, "failed": 0}, [(0, "QUEUED"), (1, "QUEUED")])
    assert never_began.pop("it:5") == {"iteration": 5, "state": "QUEUED", "runtime": {}}
    client.ask("cancelJob", jobNames=["it:4"])
    assert told("it") == ({"total": 4, "finished": 2, "failed": 2}, [*states[:2], (4, "CANCELED"), (5, "QUEUED")])
    client.ask("cancelJob", jobNames=["it"])
    until(client, "later", "OMITTED")
    states = [(2, "FAILED"), (3, "CANCELED"), (4, "CANCELED"), (5, "CANCELED")]
    assert told("it") == ({"total": 4, "finished": 4, "failed": 4}, states)
    assert told("later") == ({"total": 2, "finished": 2, "failed": 2}, [(0, "OMITTED"), (1, "OMITTED")])
    assert sorted(never_began) == ["it:4", "it:5", "later:0", "later:1"]
    assert never_began["later:1"]["messages"].startswith("it waits for 'it', which is FAILED")


@pytest.mark.parametrize("names", [{"jobNames": ["a"]}, {"jobName": "a"}, {"jobNames": "a"}])
def test_cancel_and_remove_accept_names_in_every_form(client: Bare, names: dict):
    client.ask("submit", jobs=[job("a", "sleep", "60"), job("after", "true", after=["a"])])
    until(client, "a", "EXECUTING")
    assert client.ask("removeJob", **names)["data"] == {
        "removed": 0,
        "errors": {"a": "job 'a' is EXECUTING; only a job that has ended can be removed"},
    }
    assert client.ask("cancelJob", **names)["data"] == {"canceled": 1}
    until(client, "a", "CANCELED")
    until(client, "after", "OMITTED")
    assert client.ask("cancelJob", **names)["data"]["errors"] == {"a": "job 'a' is already CANCELED"}
    assert client.ask("removeJob", **names)["data"] == {"removed": 1}
    assert client.ask("removeJob", **names)["data"] == {"removed": 0, "errors": {"a": "there is no job 'a'"}}
    assert client.ask("submit", jobs=[job("a", "true")])["code"] == 0


def test_one_iteration_is_cancelled_alone(client: Bare):
    client.ask("submit", jobs=[job("it", "sleep", "60", iteration=3)])
    until(client, "it:1", "EXECUTING")
    assert client.ask("cancelJob", jobNames=["it:1"])["data"] == {"canceled": 1}
    until(client, "it:1", "CANCELED")
    until(client, "it:2", "EXECUTING")


def test_resources_info_counts_nodes_and_cores(client: Bare):
    free = {"total_nodes": 2, "total_cores": 4, "used_cores": 0, "free_cores": 4}
    assert client.ask("resourcesInfo") == {"code": 0, "data": free}
    client.ask("submit", jobs=[job("a", "sleep", "60", numCores={"exact": 3})])
    until(client, "a", "EXECUTING")
    assert client.ask("resourcesInfo")["data"] == {**free, "used_cores": 3, "free_cores": 1}


def test_a_run_without_remote_hosts_lists_none_and_connects_to_none(client: Bare):
    assert client.ask("hosts") == {"code": 0, "data": {"hosts": {}}}
    reply = client.ask("connectHost", host="wizard")
    assert reply == {"code": 1, "message": 'there is no remote host "wizard": this run has none'}


def test_status_gives_an_overview(client: Bare, service: Served):
    client.ask("submit", jobs=[job("a", "true"), job("b", "false"), job("it", "true", iteration=3)])
    wait_for(lambda: client.ask("status", options={"allJobsFinished": True})["data"] == {"AllJobsFinished": True})
    data = client.ask("status")["data"]
    assert set(data) == {"System", "Resources", "JobStats", "IterationStats"}
    assert data["System"]["Zmqaddress"] == service.contact.address
    assert data["System"]["StatusPublisher"] == service.contact.publisher
    assert data["System"]["InstanceId"] == "x"
    assert data["Resources"] == {"TotalNodes": 2, "TotalCores": 4, "UsedCores": 0, "FreeCores": 4}
    jobs = {"TotalJobs": 3, "InScheduleJobs": 0, "FailedJobs": 1, "FinishedJobs": 2, "ExecutingJobs": 0}
    jobs |= {"CanceledJobs": 0, "OmittedJobs": 0}
    assert data["JobStats"] == jobs
    assert data["IterationStats"]["TotalIterations"] == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is not valid JSON"),
        (b"\xff\xfe\x00", "is not valid JSON"),
        (b"{", "is not valid JSON"),
        (b"[]", 'must be an object with the key "request"'),
        (b"{}", 'the key "request"'),
        (b'{"request": 7}', 'the key "request"'),
        (b'{"request": "sbmit"}', "unknown request"),
        (b'{"request": "submit"}', "jobs"),
        (b'{"request": "submit", "jobs": []}', "jobs"),
        (b'{"request": "submit", "jobs": [7, null, "x"]}', "jobs[2]"),
        (b'{"request": "jobStatus"}', "jobNames"),
        (b'{"request": "jobStatus", "jobNames": [1]}', "jobNames[0]"),
        (b'{"request": "jobInfo", "jobNames": ["a"], "params": []}', "params"),
        (b'{"request": "control", "command": "explode"}', "command"),
        (b'{"request": "finish", "now": true}', "now"),
        (b'{"request": "listJobs"}{"request": "finish"}', "is not valid JSON"),
        (b"[" * 100_000, "too many levels deep"),
        (b'{"request": "submit", "jobs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too many levels deep"),
        (
            b'{"request": "submit", "jobs": [{"name": "a", "exec": "x", "numCores": ' + b"9" * 5000 + b"}]}",
            "too many digits",
        ),
    ],
    ids=range(19),
)
def test_an_invalid_request_is_answered_with_the_error(client: Bare, text: bytes, reason: str):
    reply = client.ask_text(text)
    assert reply["code"] != 0
    assert set(reply) == {"code", "message"}
    assert reason in reply["message"]
    assert client.ask("resourcesInfo")["code"] == 0


def test_requests_that_are_sent_together_are_all_answered(service: Served):
    with service.client(zmq.DEALER) as client:
        for number in range(500):
            client.send(b"%d" % number, b"", b'{"request": "resourcesInfo"}')
        answers = [client.receive() for _ in range(500)]
    assert {frames[0] for frames in answers if frames} == {b"%d" % number for number in range(500)}
    assert all(json.loads(frames[-1])["code"] == 0 for frames in answers if frames)


def test_a_client_that_does_not_read_its_answers_does_not_stop_others(service: Served):
    with service.client(zmq.DEALER) as greedy, service.client() as other:
        for _ in range(5000):
            greedy.send(b"", b'{"request": "status"}')
        assert other.ask("resourcesInfo")["code"] == 0


def test_control_ends_the_manager_when_every_job_is_final(tmp_path: Path):
    with served(tmp_path, "--nodes", "1") as service, service.client() as client:
        client.ask("submit", jobs=[job("a", "sleep", "0.3"), job("b", "touch", "done", after=["a"])])
        reply = client.ask("control", command="finishAfterAllTasksDone")
        assert reply == {"code": 0, "message": "finishAfterAllTasksDone command accepted"}
        assert service.process.wait(60) == 0
        assert (tmp_path / "done").exists()


def test_finish_ends_the_manager_and_its_jobs_and_accepts_no_new_ones(tmp_path: Path):
    stubborn = job("stubborn", "sh", "-c", "trap '' TERM; touch ready; while :; do sleep 0.1; done")
    with served(tmp_path, "--nodes", "2") as service, service.client() as client:
        client.ask("submit", jobs=[stubborn])
        wait_for((tmp_path / "ready").exists, what="the job")
        assert client.ask("finish")["code"] == 0
        late = client.ask("submit", jobs=[job("late", "touch", "late")])
        assert late == {"code": 1, "message": "the manager is ending and accepts no more jobs"}
        assert service.process.wait(60) == 1
        assert "1 CANCELED" in service.log()
        assert not (tmp_path / "late").exists()
