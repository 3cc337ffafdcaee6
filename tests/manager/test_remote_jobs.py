"""Jobs on remote hosts, from the submission to the entries of the report."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qcg.pilotjob.cli.commands.info import details
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.description.requests import JobInfo
from qcg.pilotjob.executors.base import NodeLayout
from qcg.pilotjob.host.records import Ended, RemoteRequest
from qcg.pilotjob.interfaces.handlers.job_info import job_info
from qcg.pilotjob.interfaces.registry_view import RegistryView
from tests.manager.wired import Wired, jobs, run

HOSTS = {"local": ["n0"], "wizard": ["wizard"]}
REMOTE = {"host": "wizard", "directives": {"--partition": "debug"}, "inputs": ["data/"], "outputs": ["result/"]}


def on_wizard(test: Any, tmp_path: Path) -> None:
    run(tmp_path, test, HOSTS, remote=["wizard"])


async def info_of(wired: Wired, name: str) -> dict[str, Any]:
    view: Any = SimpleNamespace(
        state=wired.engine.state, views=wired.engine.views, descriptions=wired.engine.descriptions
    )
    answer = await job_info(view, JobInfo(job_name=name))
    assert answer.data is not None
    found: dict[str, Any] = answer.data["jobs"][name]["data"]
    return found


def test_one_submission_mixes_jobs_for_the_run_and_for_a_host(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.reported()
        wired.executor.connect("wizard")
        await wired.engine.submit([*jobs("here"), *jobs("there", remote=REMOTE)])
        await wired.until("launch 2.1")
        here, there = wired.executor.launches
        assert (here.remote, here.grant[0][0]) == (None, "n0")
        assert (there.grant[0][0], there.wd) == ("wizard", "work/1/there")
        assert there.remote is not None
        assert there.remote.request == RemoteRequest(0, 1, 0, 0, None)
        assert (there.remote.inputs, there.remote.directives) == (["data/"], {"--partition": "debug"})

    on_wizard(test, tmp_path)


def test_information_and_report_say_what_a_remote_job_asked_for(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.reported()
        wired.executor.connect("wizard")
        await wired.engine.submit(jobs("there", remote=REMOTE))
        await wired.until("launch 1.1")
        found = await info_of(wired, "there")
        assert found["remote"] == REMOTE
        assert (found["runtime"]["allocation"], found["runtime"]["wd"]) == ("wizard[0]", "qcg-run/i/work/1/there")
        shown = details(found)
        assert "    host: wizard" in shown
        assert "    directives: --partition=debug" in shown
        assert "    inputs: data/" in shown
        wired.executor.report("wizard", Ended("1.1", 2.0, 0, "exit", "", 7, 1.0))
        await wired.until_all_is_written()
        entry = json.loads((tmp_path / "jobs.report").read_text())
        assert (entry["remote"], entry["runtime"]["wd"]) == (REMOTE, "qcg-run/i/work/1/there")
        assert (await info_of(wired, "there"))["remote"] == REMOTE, "from the registry"

    on_wizard(test, tmp_path)


def test_an_unknown_host_is_refused_at_submission(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.reported()
        with pytest.raises(SubmissionRejected, match='there is no host "wizzard"; did you mean "wizard"'):
            await wired.engine.submit(jobs("there", remote={"host": "wizzard"}))

    on_wizard(test, tmp_path)


def test_cpus_reported_by_a_remote_host_do_not_affect_other_nodes(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.reported()
        wired.engine.node_described("wizard", NodeLayout(cpus={0: 4, 1: 5}))
        wired.executor.connect("wizard")
        await wired.engine.submit([*jobs("here"), *jobs("there", remote=REMOTE)])
        await wired.until("launch 2.1")
        here, there = wired.executor.launches
        assert (here.cores, there.cores) == (None, (4,))

    on_wizard(test, tmp_path)


def test_a_job_of_a_host_that_is_away_is_sent_when_the_host_is_back(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.reported()
        wired.engine.host_away("wizard", ["wizard"], "Connection refused")
        await wired.engine.submit(jobs("there", remote=REMOTE))
        await asyncio.sleep(0)
        assert wired.executor.launches == []
        wired.executor.connect("wizard")
        await wired.until("launch 1.1")

    on_wizard(test, tmp_path)


def test_a_run_without_a_manager_still_shows_its_remote_jobs(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.reported()
        wired.executor.connect("wizard")
        await wired.engine.submit(jobs("there", remote=REMOTE))
        await wired.until("launch 1.1")

    on_wizard(test, tmp_path)
    view = RegistryView(tmp_path)
    try:
        answer = asyncio.run(job_info(view, JobInfo(job_name="there")))
    finally:
        view.close()
    assert answer.data is not None
    found = answer.data["jobs"]["there"]["data"]
    assert found["remote"] == REMOTE
    assert found["runtime"]["wd"] == "work/1/there"
