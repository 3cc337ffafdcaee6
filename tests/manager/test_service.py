"""The service when an error occurs."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.common.options import Options, Resumption, UsageError
from qcg.pilotjob.core.effects import Effect, Transition
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, Job
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.executors.base import ExecutorFactory
from qcg.pilotjob.host.records import Ended, Launch, Started
from qcg.pilotjob.interfaces.factory import InterfaceFactory
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.launch.compose import compose
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.manager import bootstrap, commits, engine, service
from qcg.pilotjob.manager.job_views import JobViews
from qcg.pilotjob.manager.placement import Placement
from qcg.pilotjob.manager.run_result import RunResult
from qcg.pilotjob.manager.service import Service
from tests.support.conversation import Conversation, talk
from tests.support.memory_executor import MemoryExecutor
from tests.support.pilot import job, write_requests


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "No space left on device; make room, and try again"),
        (errno.EDQUOT, "Disk quota exceeded; make room, and try again"),
        (errno.EACCES, "Permission denied; fix that, or choose another --wd, and try again"),
    ],
)
def test_a_contact_file_that_cannot_be_written_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
):
    def cannot(*given: object) -> None:
        raise OSError(number, os.strerror(number))

    async def begin() -> None:
        await Service(Options(wd=str(tmp_path), nodes="1"), interfaces=InterfaceFactory()).run()

    monkeypatch.setattr(service, "announce", cannot)
    with pytest.raises(UsageError, match=f"cannot be written: {message}"):
        asyncio.run(begin())
    assert not list(tmp_path.iterdir()), "nothing is left of a run that could not begin"


@pytest.mark.parametrize("step", ["prepare.Journal.create", "service.log_to", "service.assemble", "service.announce"])
def test_a_failed_start_leaves_no_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str):
    def fail(*given: object, **options: object) -> None:
        raise MemoryError

    async def begin() -> None:
        await Service(Options(wd=str(tmp_path), nodes="1"), interfaces=InterfaceFactory()).run()

    monkeypatch.setattr(f"qcg.pilotjob.manager.{step}", fail)
    with pytest.raises(MemoryError):
        asyncio.run(begin())
    assert not list(tmp_path.iterdir())


def requests_of(directory: Path, *jobs: dict[str, Any]) -> Options:
    path = write_requests(directory / "r.json", list(jobs))
    return Options(wd=str(directory), nodes="1", file_path=str(path), wait=True)


def serve(options: Options, resumption: Resumption | None = None) -> RunResult:
    async def within() -> RunResult:
        return await asyncio.wait_for(Service(options, resumption, interfaces=InterfaceFactory()).run(), 100)

    return asyncio.run(within())


def test_refused_descriptions_of_a_rerun_leave_nothing_to_be_written_later(tmp_path: Path):
    run = serve(requests_of(tmp_path, job("a", "false"))).run_dir
    resumption = Resumption(run, {}, rerun=("failed",), replacements=({"name": "b", "exec": "true"},))
    later: list[dict[str, Any]] = []

    async def resume() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: later.append(context))
        with pytest.raises(UsageError, match="there is no job 'b' that could be run again"):
            await Service(Options(), resumption, interfaces=InterfaceFactory()).run()
        await asyncio.sleep(2 * commits.COMMIT_DELAY)

    asyncio.run(resume())
    assert later == []
    assert serve(Options(), Resumption(run, {}, rerun=("failed",))).exit_code == 1, "it can still be resumed"


class AnsweringExecutor(MemoryExecutor):
    """An executor that connects to its only host itself, which ends every attempt at once."""

    def start(self) -> None:
        super().start()
        self.connect("machine")

    def launch(self, node: str, launch: Launch) -> None:
        grant = launch.grant
        ended = Ended(launch.id, 2.0, 0, "exit", "", 7, 1.0, grant)
        asyncio.get_running_loop().call_soon(self.report, "machine", Started(launch.id, 7, 1.0, grant), ended)

    async def shut_down(self, grace: float, reason: str) -> None:
        pass


def test_a_manager_that_connects_to_its_hosts_itself_needs_no_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def factory(placement: Placement, *more: object) -> ExecutorFactory:
        nodes = [spec.name for spec in placement.specs]
        return lambda observer: AnsweringExecutor(observer, {"machine": nodes}, [])

    monkeypatch.setattr(bootstrap, "agent_executor", factory)
    ended = serve(requests_of(tmp_path, job("a", "true"), job("b", "true", after=["a"])))
    assert (ended.exit_code, ended.counts[State.SUCCEED]) == (0, 2)


def test_after_an_unexpected_error_in_a_turn_the_run_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    composed: list[str] = []

    def defective(description: JobDescription, run: Attempt, site: Site) -> Launch:
        composed.append(description.name)
        if len(composed) == 2:
            raise RuntimeError("a defect")
        return compose(description, run, site)

    options = requests_of(tmp_path, *(job(f"a{number}", "true") for number in range(4)))
    with monkeypatch.context() as patch:
        patch.setattr(engine, "compose", defective)
        left = serve(options)
    assert left.exit_code == 3
    assert left.end.reason.startswith("an unexpected error occurred, see ")
    log = (tmp_path / "service.log").read_text()
    assert "CRITICAL" in log
    assert "RuntimeError: a defect" in log
    resumed = serve(options, Resumption(left.run_dir, {}))
    assert (resumed.exit_code, resumed.counts[State.SUCCEED]) == (0, 4)


def test_an_unexpected_error_does_not_lose_records_of_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    end_of = JobViews.end_of

    def defective(views: JobViews, transition: Transition) -> Any:
        monkeypatch.setattr(JobViews, "end_of", end_of)
        raise RuntimeError("a defect")

    options = requests_of(tmp_path, *(job(f"a{number}", "true") for number in range(3)))
    monkeypatch.setattr(JobViews, "end_of", defective)
    left = serve(options)
    assert left.exit_code == 3
    resumed = serve(options, Resumption(left.run_dir, {}))
    assert (resumed.exit_code, resumed.counts[State.SUCCEED]) == (0, 3)


def test_an_unexpected_error_in_a_request_is_answered_and_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def defective(views: JobViews, job: Job, position: int) -> Any:
        raise RuntimeError("a defect")

    async def walk(service: Conversation) -> None:
        await service.data("submit", jobs=[job("a", "true")])
        monkeypatch.setattr(JobViews, "view_of", defective)
        answered = await service.ask("jobInfo", jobNames=["a"])
        assert (answered["code"], answered["message"]) == (1, "internal error, see service.log")
        await service.data("submit", jobs=[job("b", "true")])
        for name in ("a", "b"):
            await service.until(name, "SUCCEED")

    assert talk(tmp_path, walk).exit_code == 0
    assert "RuntimeError: a defect" in (tmp_path / "service.log").read_text()


def test_a_parameter_file_that_no_thread_can_read_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def walk(service: Conversation) -> None:
        (tmp_path / "p.csv").write_text("T\n1\n")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            refused = await service.ask("submit", jobs=[job("a", "true", iteration={"file": "p.csv"})])
        assert refused["code"] == 1
        assert "p.csv cannot be read: no thread can be started (can't start new thread)" in refused["message"]

    talk(tmp_path, walk)


def test_the_manager_ends_after_a_request_that_leaves_the_core_inconsistent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    record = Journal.record

    def defective(journal: Journal, effect: Effect) -> None:
        monkeypatch.setattr(Journal, "record", record)
        raise RuntimeError("a defect")

    options = requests_of(tmp_path, job("a", "true"))
    monkeypatch.setattr(Journal, "record", defective)
    left = serve(options)
    assert (left.exit_code, left.requests.refusals) == (3, ["request 1: internal error, see service.log"])
    resumed = serve(options, Resumption(left.run_dir, {}))
    assert (resumed.exit_code, resumed.counts[State.SUCCEED]) == (0, 1)
