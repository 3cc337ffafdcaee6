"""The asyncio client."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.api import aio
from qcg.pilotjob.api.aio import AsyncManager
from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import ConnectionError, FileError, RequestRefusedError, ServiceError, TimeoutElapsed
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.local_process import ManagerProcess
from tests.support.processes import descendants
from tests.support.serving import Served, served
from tests.support.waiting import wait_for

Scenario = Callable[[AsyncManager], Awaitable[None]]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("run"), "--nodes", "4") as service:
        yield service


@pytest.fixture
def play(service: Served, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    """Run a scenario with a manager, and remove all jobs."""
    monkeypatch.chdir(service.wd)

    async def run(scenario: Scenario) -> None:
        async with AsyncManager() as manager:
            await scenario(manager)
            names = list(await manager.list())
            await manager.cancel(names)
            await manager.wait4all(60)
            await manager.remove(names)

    return lambda scenario: asyncio.run(run(scenario))


async def until_asked(manager: AsyncManager, *requests: str) -> None:
    """Wait until these requests were answered: waits send them after they have subscribed. To be called before the
    waits start."""
    left = set(requests)
    all_asked = asyncio.Event()
    ask = manager._send_once

    async def note(body: bytes) -> dict[str, Any]:
        answer = await ask(body)
        left.discard(json.loads(body)["request"])
        if not left:
            all_asked.set()
        return answer

    manager._send_once = note  # type: ignore[method-assign]
    await asyncio.wait_for(all_asked.wait(), 60)


def test_the_asyncio_client_has_every_call_of_the_manager():
    def calls(kind: type) -> set[str]:
        return {name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")}

    assert calls(Manager) - calls(AsyncManager) == {"cleanup", "listen"}


def test_nodes_are_drained_and_used_again(play: Callable[[Scenario], None]):
    async def scenario(manager: AsyncManager) -> None:
        told = await manager.drain_nodes("n0", "the disk is full")
        assert "n0" in told
        assert (await manager.resources())["drained"]["n0"]["reason"] == "the disk is full"
        await manager.submit(Jobs().add(name="a", exec="true"))
        assert "drained" in str((await manager.why("a"))["jobs"]["a"]["data"]), await manager.why("a")
        assert "n0" in await manager.resume_nodes(["n0"])
        assert "drained" not in await manager.resources()
        assert await manager.wait4("a", 60) == {"a": "SUCCEED"}
        with pytest.raises(RequestRefusedError, match="n7"):
            await manager.drain_nodes(["n0", "n7"])
        assert "drained" not in await manager.resources()

    play(scenario)


def test_every_call_works(play: Callable[[Scenario], None]):
    async def scenario(manager: AsyncManager) -> None:
        jobs = Jobs().add(name="a", exec="true").add(name="b", exec="sleep", args=["60"], iteration=2)
        assert await manager.submit(jobs) == ["a", "b"]
        assert await manager.wait4("a", 60) == {"a": "SUCCEED"}
        assert (await manager.status(["a"]))["jobs"]["a"]["data"]["status"] == "SUCCEED"
        assert list(await manager.list(["b"])) == ["b"]
        assert (await manager.info("a"))["jobs"]["a"]["status"] == 0
        assert (await manager.info_parsed("a"))["a"].exit_code == 0
        assert (await manager.why("a"))["jobs"]["a"]["data"]["reason"] == "succeeded"
        assert (await manager.resources())["total_cores"] == 4
        assert (await manager.system_status())["System"]["InstanceId"] == "x"
        assert (await manager.send_request({"request": "resourcesInfo"}))["code"] == 0
        next_end = asyncio.ensure_future(manager.wait4_any_job_finish(60))
        iterations = asyncio.ensure_future(manager.wait4(["b:0", "b:1"], 60))
        await until_asked(manager, "endedJobs", "jobStatus")
        assert await manager.cancel("b") == {"canceled": 1}
        assert await next_end == ("a", "SUCCEED")
        assert await manager.wait4_any_job_finish(60) == ("b", "CANCELED")
        assert [end async for end in manager.as_completed(["b", "a"], 60)] == [("b", "CANCELED"), ("a", "SUCCEED")]
        assert await iterations == {"b:0": "CANCELED", "b:1": "CANCELED"}
        await manager.wait4all(60)
        assert await manager.remove("a") == {"removed": 1}

    play(scenario)


def test_the_asyncio_client_raises_the_same_errors(play: Callable[[Scenario], None]):
    async def scenario(manager: AsyncManager) -> None:
        await manager.submit(Jobs().add(name="a", exec="sleep", args=["60"]))
        with pytest.raises(TimeoutElapsed):
            await manager.wait4("a", 0.1)
        with pytest.raises(TimeoutElapsed):
            await manager.wait4("a", 0)
        with pytest.raises(RequestRefusedError, match="there is no job 'nobody'"):
            await manager.wait4("nobody")

    play(scenario)


def test_a_thousand_waits_run_concurrently_without_threads(play: Callable[[Scenario], None]):
    async def scenario(manager: AsyncManager) -> None:
        await manager.submit(
            Jobs()
            .add(name="many", exec="true", iteration=1000, after="gate")
            .add(name="gate", exec="sleep", args=["60"])
        )
        before = threading.active_count()
        waits = [asyncio.ensure_future(manager.wait4(f"many:{index}", 60)) for index in range(1000)]
        await asyncio.sleep(0.5)
        assert threading.active_count() == before
        assert (await manager.resources())["total_cores"] == 4
        await manager.cancel("many")
        states = await asyncio.gather(*waits)
        assert states == [{f"many:{index}": "CANCELED"} for index in range(1000)]

    play(scenario)


def test_a_cancelled_wait_leaves_no_connection(play: Callable[[Scenario], None]):
    async def scenario(manager: AsyncManager) -> None:
        await manager.submit(Jobs().add(name="a", exec="sleep", args=["60"]))
        before = threading.active_count(), len(asyncio.all_tasks())
        for _ in range(100):
            wait = asyncio.ensure_future(manager.wait4("a"))
            await asyncio.sleep(0)
            wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait
        assert (threading.active_count(), len(asyncio.all_tasks())) == before
        assert not manager._events
        assert list(await manager.list()) == ["a"]

    play(scenario)


def test_leaving_the_block_ends_pending_calls(service: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(service.wd)

    async def scenario() -> None:
        async with AsyncManager() as manager:
            await manager.submit(Jobs().add(name="a", exec="sleep", args=["60"]))
            waits = [asyncio.ensure_future(manager.wait4("a")), asyncio.ensure_future(manager.wait4all())]
            await asyncio.sleep(0.2)
        for wait in waits:
            with pytest.raises(ConnectionError, match="was left"):
                await wait
        with pytest.raises(ConnectionError, match="was left and cannot be used"):
            await manager.list()
        async with AsyncManager() as other:
            await other.cancel("a")
            await other.wait4all(60)
            await other.remove("a")

    asyncio.run(scenario())


def test_an_own_manager_ends_with_the_block(tmp_path: Path):
    async def scenario() -> None:
        options = ["--wd", tmp_path, "--nodes", 1]
        async with AsyncManager(local=True, server_args=options) as manager:
            names = await manager.submit(Jobs().add(name="a", exec="true").add(name="b", exec="sleep", args=["60"]))
            assert await manager.wait4(names[0], 60) == {"a": "SUCCEED"}

    before = descendants()
    asyncio.run(scenario())
    assert descendants() == before


def test_an_own_manager_can_be_finished(tmp_path: Path):
    async def scenario() -> None:
        async with AsyncManager(local=True, server_args=["--wd", tmp_path]) as manager:
            await manager.finish()
            with pytest.raises(ConnectionError):
                await manager.list()

    asyncio.run(scenario())


def test_a_manager_that_cannot_start_is_an_error(tmp_path: Path):
    async def scenario() -> None:
        with pytest.raises(ServiceError, match="No such option"):
            async with AsyncManager(local=True, server_args=["--nonsense"]):
                pass

    asyncio.run(scenario())


def test_a_cancelled_start_leaves_no_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    under_way, cancelled = threading.Event(), threading.Event()

    def start(*arguments: Any) -> ManagerProcess:
        under_way.set()
        service = ManagerProcess(*arguments)
        assert cancelled.wait(60)  # otherwise the manager might be ready before the test cancels the start
        return service

    monkeypatch.setattr(aio, "ManagerProcess", start)

    async def scenario() -> None:
        starting = asyncio.ensure_future(AsyncManager(local=True, server_args=["--wd", tmp_path]).__aenter__())
        assert await asyncio.to_thread(under_way.wait, 60)
        starting.cancel()
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await starting

    before = descendants()
    asyncio.run(scenario())
    assert list(tmp_path.glob(".qcgpjm-service-*")), "it had started"
    # An agent that was being started notices the cancellation when it has loaded its modules.
    wait_for(lambda: descendants() == before, what="the end of all that was started")


def test_a_block_that_cannot_be_entered_leaves_no_manager(tmp_path: Path):
    async def enter() -> None:
        cfg = {"log_file": "/proc/nowhere/api.log"}
        async with AsyncManager(local=True, server_args=["--nodes", "1", "--wd", tmp_path], cfg=cfg):
            raise AssertionError("it was entered")

    with pytest.raises(FileError, match="cannot be the log file|can be no log file"):
        asyncio.run(enter())


def test_calls_after_the_block_raise_an_error(service: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(service.wd)
    manager = AsyncManager()

    async def leave() -> None:
        with pytest.raises(ConnectionError, match="use AsyncManager in an `async with` block"):
            await manager.resources()
        async with manager:
            await manager.resources()
        with pytest.raises(ConnectionError, match="was left and cannot be used any more"):
            await manager.resources()

    asyncio.run(leave())
