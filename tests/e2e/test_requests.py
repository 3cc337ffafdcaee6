"""Each request is answered in the documented form."""

from __future__ import annotations

import getpass
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.conversation import Conversation, talk
from tests.support.pilot import Run, job, run, run_requests, write_requests

DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}"
WAITS = ["bash", "-c", "until [ -e go ]; do sleep 0.02; done"]


def names(*jobs: str) -> dict[str, Any]:
    return {"jobNames": list(jobs)}


def test_msleep2_answers_all_requests(tmp_path: Path):
    msleep2 = {
        "name": "msleep2",
        "execution": {
            "exec": "/bin/bash",
            "args": WAITS[1:],
            "env": {},
            "wd": "sleep.sandbox",
            "stdout": "sleep2.${ncores}.${nnodes}.stdout",
            "stderr": "sleep2.${ncores}.${nnodes}.stderr",
        },
        "resources": {"numCores": {"exact": 2}},
    }
    sandbox = tmp_path / "sleep.sandbox"

    async def walk(service: Conversation) -> None:
        await service.data("submit", jobs=[job("all-cores", *WAITS, numCores=4)])
        await service.until("all-cores", "EXECUTING")
        submitted = {"code": 0, "message": "1 jobs submitted", "data": {"submitted": 1, "jobs": ["msleep2"]}}
        assert await service.ask("submit", jobs=[msleep2]) == submitted
        listed = {"all-cores": {"status": "EXECUTING"}, "msleep2": {"status": "QUEUED", "inQueue": 0}}
        assert await service.ask("listJobs") == {"code": 0, "data": {"length": 2, "jobs": listed}}
        refused = await service.ask("submit", jobs=[msleep2])
        assert refused["code"] == 1
        assert "'msleep2' already exists" in refused["message"]
        (tmp_path / "go").touch()
        await service.until("all-cores", "SUCCEED")
        await service.data("removeJob", **names("all-cores"))

        await service.until("msleep2", "EXECUTING")
        assert (await service.data("listJobs"))["jobs"] == {"msleep2": {"status": "EXECUTING"}}
        resources = {"total_nodes": 1, "total_cores": 4, "used_cores": 2, "free_cores": 2}
        assert await service.ask("resourcesInfo") == {"code": 0, "data": resources}
        running = await service.info("msleep2")
        assert running["status"] == "EXECUTING"
        assert running["runtime"]["allocation"] == "n0[0:1]"
        assert re.fullmatch(rf"\n{DATE}: QUEUED\n{DATE}: SCHEDULED\n{DATE}: EXECUTING", running["history"])
        removed = await service.data("removeJob", **names("msleep2"))
        assert removed["removed"] == 0
        assert "EXECUTING" in removed["errors"]["msleep2"]

        (sandbox / "go").touch()
        await service.until("msleep2", "SUCCEED")
        state = {"jobName": "msleep2", "status": "SUCCEED"}
        status = await service.ask("jobStatus", **names("msleep2"))
        assert status == {"code": 0, "data": {"jobs": {"msleep2": {"status": 0, "data": state}}}}
        info = await service.info("msleep2")
        assert info.items() >= state.items()
        assert info["runtime"].items() >= {"wd": str(sandbox), "exit_code": "0", "pname": "bash"}.items()
        assert re.fullmatch(r"0:00:\d\d\.\d{6}", info["runtime"]["rtime"])
        assert info["runtime"]["pid"].isdigit()
        states = ("QUEUED", "SCHEDULED", "EXECUTING", "SUCCEED")
        assert re.fullmatch("".join(rf"\n{DATE}: {state}" for state in states), info["history"])
        assert sorted(path.name for path in sandbox.glob("sleep2*")) == ["sleep2.2.1.stderr", "sleep2.2.1.stdout"]

        assert await service.ask("removeJob", **names("msleep2")) == {"code": 0, "data": {"removed": 1}}
        assert await service.data("listJobs") == {"length": 0, "jobs": {}}
        service.forget("msleep2")
        assert await service.ask("submit", jobs=[msleep2]) == submitted
        await service.until("msleep2", "SUCCEED")

        assert (await service.ask("control", command="finishAfterAllTasksDone"))["code"] == 0
        assert (await service.ask("finish"))["code"] == 0

    ending = talk(tmp_path, walk)
    assert ending.exit_code == 0


def test_iterations_have_states_messages_and_children(tmp_path: Path):
    script = "case ${it} in 2) exit 3;; 3) until [ -e go ]; do sleep 0.02; done;; esac"
    iterated = {"name": "it", "execution": {"script": script}, "iteration": {"start": 1, "stop": 5}}

    async def walk(service: Conversation) -> None:
        await service.data("submit", jobs=[iterated])
        for name, state in (("it:1", "SUCCEED"), ("it:2", "FAILED"), ("it:3", "EXECUTING"), ("it:4", "SUCCEED")):
            await service.until(name, state)
        info = await service.info("it", params={"withChilds": True})
        assert info["status"] == "EXECUTING"
        assert info["iterations"] == {"start": 1, "stop": 5, "total": 4, "finished": 3, "failed": 1}
        children = {child["iteration"]: child for child in info["childs"]}
        assert {index: child["state"] for index, child in children.items()} == {
            1: "SUCCEED",
            2: "FAILED",
            3: "EXECUTING",
            4: "SUCCEED",
        }
        assert children[2]["runtime"]["exit_code"] == "3"
        one = await service.info("it:2")
        assert (one["jobName"], one["status"]) == ("it:2", "FAILED")
        assert "3" in one["messages"]
        assert one["history"].endswith("FAILED")
        assert "childs" not in await service.info("it")

        (tmp_path / "go").touch()
        await service.until("it", "FAILED")
        whole = await service.info("it")
        assert whole["iterations"]["finished"] == 4
        assert [line.split(": ")[1] for line in whole["history"].split("\n")[1:]] == ["QUEUED", "EXECUTING", "FAILED"]
        assert whole["messages"] == "1 of 4 iterations failed"
        states = await service.data("jobStatus", **names("it", "it:1", "it:2", "it:5", "it:x", "no"))
        found = {name: entry.get("data", {}).get("status") for name, entry in states["jobs"].items()}
        assert found == {"it": "FAILED", "it:1": "SUCCEED", "it:2": "FAILED", "it:5": None, "it:x": None, "no": None}
        assert states["jobs"]["it:5"] == {"status": 1, "message": "job 'it' has no iteration '5'; there are 1, 2, 3, 4"}
        assert states["jobs"]["no"] == {"status": 1, "message": "there is no job 'no'"}

    assert talk(tmp_path, walk).exit_code == 1


def test_cancel_ends_queued_and_running_jobs_and_single_iterations(tmp_path: Path):
    jobs = [
        job("runs", *WAITS, numCores=2),
        job("old", *WAITS, numCores=2),
        job("waits", "true", numCores=4),
        job("after", "true", after=["waits"]),
        job("it", "true", iteration=3, numCores=4),
        job("after-it", "true", after=["it:1"]),
        job("after-other", "true", after=["it:0"]),
    ]

    async def walk(service: Conversation) -> None:
        await service.data("submit", jobs=jobs)
        await service.until("old", "EXECUTING")
        canceled = await service.data("cancelJob", jobNames=["waits", "it:1", "no", "it:7"])
        errors = {"no": "there is no job 'no'", "it:7": "job 'it' has no iteration '7'; there are 0, 1, 2"}
        assert canceled == {"canceled": 2, "errors": errors}
        states = {name: entry["status"] for name, entry in (await service.data("listJobs"))["jobs"].items()}
        assert states["waits"] == "CANCELED"
        assert states["after"] == states["after-it"] == "OMITTED", "at once, while all cores are taken"
        assert states["it"] == states["after-other"] == "QUEUED"
        assert "waits" in (await service.info("after"))["messages"]
        again = await service.data("cancelJob", **names("waits"))
        assert again == {"canceled": 0, "errors": {"waits": "job 'waits' is already CANCELED"}}

        assert await service.data("cancelJob", jobName="old") == {"canceled": 1}
        assert await service.data("cancelJob", jobNames="runs") == {"canceled": 1}
        await service.until("old", "CANCELED")
        await service.until("after-other", "SUCCEED")
        await service.until("it", "CANCELED")
        assert (await service.info("old"))["runtime"]["exit_code"] == "-15"
        assert (await service.data("removeJob", jobName="old")) == {"removed": 1}

    assert talk(tmp_path, walk).exit_code == 1


def test_status_is_an_overview_of_the_whole_system(tmp_path: Path):
    jobs = [job("fails", "false"), job("waits", *WAITS, iteration=2), job("late", "true", after=["waits"])]

    async def walk(service: Conversation) -> None:
        assert await service.data("status", options={"allJobsFinished": True}) == {"AllJobsFinished": True}
        await service.data("submit", jobs=jobs)
        await service.until("fails", "FAILED")
        for name in ("waits:0", "waits:1"):
            await service.until(name, "EXECUTING")
        status = await service.data("status")
        assert set(status) == {"System", "Resources", "JobStats", "IterationStats"}
        assert status["System"]["Wd"] == str(tmp_path)
        assert status["System"]["Account"] == getpass.getuser()
        assert status["Resources"] == {"TotalNodes": 1, "TotalCores": 4, "UsedCores": 2, "FreeCores": 2}
        assert status["JobStats"] == {
            "TotalJobs": 3,
            "InScheduleJobs": 1,
            "FailedJobs": 1,
            "FinishedJobs": 0,
            "ExecutingJobs": 1,
            "CanceledJobs": 0,
            "OmittedJobs": 0,
        }
        assert status["IterationStats"]["ExecutingIterations"] == 2
        assert await service.data("status", options={"allJobsFinished": True}) == {"AllJobsFinished": False}
        (tmp_path / "go").touch()
        await service.until("late", "SUCCEED")
        assert await service.data("status", options={"allJobsFinished": True}) == {"AllJobsFinished": True}

    talk(tmp_path, walk)


def test_a_bad_request_is_answered_with_one_sentence_and_the_service_continues(tmp_path: Path):
    async def walk(service: Conversation) -> None:
        for raw, said in [
            (b"", "not"),
            (b"{", "not"),
            (b"\xff\xfe", "not"),
            (b'"submit"', "object"),
            (b"[]", "object"),
            (b"{}", '"request"'),
            (b'{"request": 1}', '"request"'),
            (b'{"request": "submitt"}', 'did you mean "submit"'),
            (b'{"request": "submit"}', "jobs"),
            (b'{"request": "submit", "jobs": []}', "jobs"),
            (b'{"request": "submit", "jobs": {}}', "jobs"),
            (b'{"request": "submit", "jobs": [1]}', "jobs[0]"),
            (b'{"request": "submit", "jobs": [{"name": "a", "execution": {"exec": "a", "arg": []}}]}', '"args"'),
            (b'{"request": "control", "command": "stop"}', "finishAfterAllTasksDone"),
            (b'{"request": "jobStatus"}', "jobNames"),
            (b'{"request": "jobInfo", "jobNames": [1]}', "jobNames"),
            (b'{"request": "cancelJob", "jobNames": {}}', "jobNames"),
            (b'{"request": "listJobs", "more": 1}', "more"),
            (b'{"request": "status", "options": {"x": 1}}', "x"),
        ]:
            reply = await service.text(raw)
            assert reply["code"] == 1, raw
            assert said in reply["message"], raw
            assert "data" not in reply
        await service.data("submit", jobs=[job("good", "true")])
        await service.until("good", "SUCCEED")

    assert talk(tmp_path, walk).exit_code == 0


def test_a_file_of_requests_is_answered_in_the_log(tmp_path: Path):
    # The progress of jobs at the time of the next request is unknown, so this job runs until all requests are answered.
    until_answered = "until grep -q 'request 7 answered' service.log; do sleep 0.02; done"
    requests = [
        [job("first", script=until_answered), job("a", "true", after=["first"])],
        {"request": "listJobs"},
        {"request": "nonsense"},
        {"request": "jobStatus", "jobNames": ["a", "b"]},
        [job("a", "true")],
        {"request": "control", "command": "finishAfterAllTasksDone"},
        [job("b", "true", after=["a"])],
    ]
    done = run_requests(tmp_path, *requests)
    replies = done.replies
    assert [reply["code"] for reply in replies] == [0, 0, 1, 0, 1, 0, 0]
    assert replies[1]["data"]["length"] == 2
    assert replies[1]["data"]["jobs"]["a"]["status"] == "QUEUED"
    assert "request 3" in replies[2]["message"]
    assert "nonsense" in replies[2]["message"]
    assert replies[3]["data"]["jobs"]["b"]["status"] == 1
    assert done.states == {"first": "SUCCEED", "a": "SUCCEED", "b": "SUCCEED"}
    assert done.done.returncode == 1
    assert "nonsense" in done.done.stderr
    assert "'a' already exists" in done.done.stderr


@pytest.mark.parametrize("cancel", [False, True])
def test_finish_in_a_file_ends_the_service_at_once_and_the_rest_is_not_read(tmp_path: Path, cancel: bool):
    requests = write_requests(
        tmp_path / "r.json",
        [job("sleeps", "sleep", "1000", numCores=4), job("next", "true", numCores=4)],
        {"request": "finish", "cancel": True} if cancel else {"request": "finish"},
        [job("never", "true")],
    )
    done = run("qcg-pm-service", "--file-path", requests, "--wd", tmp_path, "--nodes", "4", "--report-format", "json")
    states = Run(tmp_path, done).states
    if cancel:
        assert done.returncode == 1
        assert states == {"sleeps": "CANCELED", "next": "CANCELED"}
    else:
        assert done.returncode == 4
        # The first job was cancelled while it ran, or had not started yet.
        assert states in ({"sleeps": "CANCELED"}, {})
        left = " left, and 1 request of the file, because the manager was told to finish."
        assert f"{left} Continue with: qcg-pm run --resume " in done.stderr
