"""The request `why`, and output paths, of real jobs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from qcg.pilotjob.interfaces.handlers.why import AT_ONCE
from tests.support.conversation import Conversation, talk
from tests.support.pilot import job

WAITS = ["bash", "-c", "until [ -e go ]; do sleep 0.02; done"]


async def why(service: Conversation, name: str) -> dict[str, Any]:
    entry = (await service.data("why", jobNames=[name]))["jobs"][name]
    assert entry["status"] == 0, entry
    data: dict[str, Any] = entry["data"]
    return data


def test_why_shows_what_jobs_wait_for_and_where_they_run(tmp_path: Path):
    async def ask(service: Conversation) -> None:
        await service.data(
            "submit",
            jobs=[
                job("first", *WAITS, numCores=3, stdout="first.out"),
                job("second", "true", after=["first"]),
                job("wide", "true", numCores=2),
            ],
        )
        await service.until("first", "EXECUTING")
        running = await why(service, "first")
        assert running["status"] == "EXECUTING"
        assert running["reason"] == "running"
        assert re.fullmatch(r"it runs on n0\[0:1:2\] since \d{4}-.* \(pid \d+\)", running["sentence"])
        assert running["stdout"] == str(tmp_path / "first.out")
        assert (await why(service, "second"))["sentence"] == "it waits for 'first', which is EXECUTING"
        assert (await why(service, "wide"))["sentence"] == "it needs 2 cores, and 1 of 4 is free"
        (tmp_path / "go").touch()
        await service.until("second", "SUCCEED")
        assert (await why(service, "second"))["sentence"] == "it has succeeded"

    talk(tmp_path, ask)


def test_why_of_a_failed_job_shows_the_end_of_its_stderr(tmp_path: Path):
    async def ask(service: Conversation) -> None:
        await service.data(
            "submit",
            jobs=[
                job("bad", "bash", "-c", "echo one >&2; echo input.dat: not found >&2; exit 3", stderr="${jname}.err"),
                job("quiet", "false"),
                job("missing", "./no-such-program", stderr="missing.err"),
                job("after", "true", after=["bad"]),
            ],
        )
        for name in ("bad", "quiet", "missing"):
            await service.until(name, "FAILED")
        bad = await why(service, "bad")
        assert bad["reason"] == "failed"
        assert bad["sentence"] == "it failed: exit code 3"
        assert bad["exitCode"] == 3
        assert bad["stderr"] == str(tmp_path / "bad.err")
        assert bad["lastLines"] == ["one", "input.dat: not found"]
        assert "lastLines" not in await why(service, "quiet")
        assert "no-such-program" in (await why(service, "missing"))["sentence"]
        assert (await why(service, "after"))["sentence"] == (
            "it was never started: it waits for 'bad', which is FAILED"
        )

    talk(tmp_path, ask)


def test_why_of_an_iterated_job_shows_counts_and_the_reason_of_its_first_waiting_iteration(tmp_path: Path):
    async def ask(service: Conversation) -> None:
        await service.data(
            "submit", jobs=[job("many", *WAITS, iteration={"start": 5, "stop": 10}, stdout="${it}.out", numCores=2)]
        )
        for name in ("many:5", "many:6"):
            await service.until(name, "EXECUTING")
        reason = await why(service, "many")
        assert reason["iterations"] == {"QUEUED": 3, "EXECUTING": 2}
        assert reason["reason"] == "resources"
        assert reason["sentence"] == (
            "its iterations are 3 QUEUED, 2 EXECUTING; the first that is QUEUED, many:7: it needs 2 cores,"
            " and 0 of 4 are free"
        )
        assert reason["first"]["jobName"] == "many:7"
        assert (await why(service, "many:6"))["stdout"] == str(tmp_path / "6.out")
        info = await service.info("many", params={"withChilds": True})
        assert [child["runtime"].get("stdout") for child in info["childs"]] == [
            str(tmp_path / "5.out"),
            str(tmp_path / "6.out"),
            *[None] * 3,
        ]
        (tmp_path / "go").touch()
        await service.until("many", "SUCCEED")
        assert (await why(service, "many"))["sentence"] == "it has succeeded, with all its iterations (5 SUCCEED)"

    talk(tmp_path, ask)


def test_why_of_a_failed_iterated_job_shows_its_first_failed_iteration(tmp_path: Path):
    async def ask(service: Conversation) -> None:
        script = "echo no luck with ${it} >&2; exit ${it}"
        await service.data("submit", jobs=[job("many", script=script, iteration=3, stderr="${it}.err")])
        await service.until("many", "FAILED")
        reason = await why(service, "many")
        assert reason["sentence"] == (
            "its iterations are 1 SUCCEED, 2 FAILED; the first that is FAILED, many:1: it failed: exit code 1"
        )
        assert reason["first"]["lastLines"] == ["no luck with 1"]

    talk(tmp_path, ask)


def test_an_unknown_name_is_an_error_in_its_own_entry_only(tmp_path: Path):
    async def ask(service: Conversation) -> None:
        await service.data("submit", jobs=[job("there", "true")])
        jobs = (await service.data("why", jobNames=["nobody", "there"], jobName="there:1"))["jobs"]
        assert jobs["nobody"] == {"status": 1, "message": "there is no job 'nobody'"}
        assert jobs["there"]["status"] == 0
        assert jobs["there:1"] == {"status": 1, "message": "job 'there' has no iterations"}

    talk(tmp_path, ask)


def test_output_files_of_jobs_have_absolute_paths(tmp_path: Path):
    async def ask(service: Conversation) -> None:
        await service.data(
            "submit",
            jobs=[
                job("files", "true", wd="sub", stdout="../o/${ncores}.out", stderr="e.err"),
                job("none", "true"),
                job("absolute", "true", stdout="/dev/null"),
            ],
        )
        for name in ("files", "none", "absolute"):
            await service.until(name, "SUCCEED")
        runtime = (await service.info("files"))["runtime"]
        assert runtime["stdout"] == str(tmp_path / "o/1.out")
        assert runtime["stderr"] == str(tmp_path / "sub/e.err")
        assert not {"stdout", "stderr"} & (await service.info("none"))["runtime"].keys()
        assert (await service.info("absolute"))["runtime"]["stdout"] == "/dev/null"

    talk(tmp_path, ask)


def test_other_clients_are_served_during_a_request_for_many_names(tmp_path: Path):
    async def ask(service: Conversation) -> None:
        names = [f"job{number}" for number in range(3 * AT_ONCE)]
        await service.data("submit", jobs=[job(name, "true", after=["gate"]) for name in names] + [job("gate", *WAITS)])
        served: list[str] = []

        async def note(name: str, request: str, **more: Any) -> Any:
            answer = await service.data(request, **more)
            served.append(name)
            return answer

        reason, _ = await asyncio.gather(note("many", "why", jobNames=names), note("few", "why", jobNames=["gate"]))
        assert served == ["few", "many"]
        assert {entry["data"]["reason"] for entry in reason["jobs"].values()} == {"dependencies"}

    talk(tmp_path, ask)
