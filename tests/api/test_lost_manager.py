"""Clients of a manager that dies, hangs or returns: no call waits forever."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.api.aio import AsyncManager
from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import ConnectionError, TimeoutElapsed
from qcg.pilotjob.api.job import Jobs
from tests.support.processes import is_alive
from tests.support.serving import PATIENCE, Served, served
from tests.support.waiting import wait_for

SECONDS = 20.0
"""The limit for "within seconds", on a busy machine too: a connection is given up after five seconds of silence, and a
request without an answer after sixty."""
LONG = "until [ -e release ]; do sleep 0.05; done"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, "--nodes", "2", "--agent-linger", "1") as service:
        service.submit({"name": "long", "script": LONG})
        service.wait("long", "EXECUTING")
        yield service
        (tmp_path / "release").touch()
        service.end()
        wait_for(lambda: not (service.run_dir / "agent-local.json").exists(), what="the end of the agent")


def started(
    service: Served, calls: list[Callable[[Manager], Any]], cfg: dict[str, Any], threads: ThreadPoolExecutor
) -> list[Any]:
    """Each call has a client and a thread of its own. The block starts when all calls wait."""

    def live(call: Callable[[Manager], Any]) -> Any:
        with Manager.of_run(service.run_dir, cfg) as manager:
            ready.append(None)
            return call(manager)

    ready: list[None] = []
    waiting = [threads.submit(live, call) for call in calls]
    wait_for(lambda: len(ready) == len(calls), what="the clients")
    time.sleep(0.3)  # until the calls wait
    return waiting


WAITS: list[Callable[[Manager], Any]] = [
    lambda manager: manager.wait4("long"),
    lambda manager: manager.wait4all(),
    lambda manager: manager.wait4_any_job_finish(),
    lambda manager: list(manager.as_completed(["long"])),
]


def test_waits_raise_an_error_when_the_manager_is_killed(service: Served):
    with ThreadPoolExecutor(len(WAITS)) as threads:
        waiting = started(service, WAITS, {}, threads)
        service.kill()
        began = time.monotonic()
        for one in waiting:
            with pytest.raises(ConnectionError, match="is gone|there is no service"):
                one.result(SECONDS)
        print(f"{time.monotonic() - began:.2f} s")


def test_calls_raise_an_error_when_the_manager_is_gone(service: Served):
    with Manager.of_run(service.run_dir) as manager:
        service.kill()
        for call in (manager.resources, manager.list, lambda: manager.wait4("long"), manager.finish):
            began = time.monotonic()
            with pytest.raises(ConnectionError):
                call()
            assert time.monotonic() - began < SECONDS


def test_waits_and_calls_raise_an_error_when_the_manager_hangs(service: Served):
    with ThreadPoolExecutor(5) as threads:
        waiting = started(service, WAITS, {}, threads)
        service.process.send_signal(signal.SIGSTOP)
        with Manager.__new__(Manager) as manager:
            began = time.monotonic()
            with pytest.raises(ConnectionError):
                manager.__init__(service.contact.address)  # type: ignore[misc]
            assert time.monotonic() - began < SECONDS
        for one in waiting:
            with pytest.raises(ConnectionError):
                one.result(SECONDS)
        service.process.send_signal(signal.SIGCONT)


def test_a_call_has_its_own_timeout(service: Served):
    def impatient() -> Manager | None:
        with suppress(ConnectionError):  # half a second may be too little here
            return Manager.of_run(service.run_dir, {"request_timeout": 0.5})
        return None

    manager = wait_for(impatient, what="an answer in time")
    assert manager is not None
    with manager:
        service.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(ConnectionError, match=r"did not answer within 0\.5 s"):
            manager.resources()
        assert time.monotonic() - began < SECONDS
        service.process.send_signal(signal.SIGCONT)
        assert service.ask("resourcesInfo")["code"] == 0

        def goes_on() -> bool:
            with suppress(ConnectionError):  # half a second may be too little here
                return bool(manager.resources()["total_cores"] == 2)
            return False

        wait_for(goes_on, what="an answer in time")


def test_waits_continue_with_the_resumed_manager_after_a_reconnect(service: Served):
    with ThreadPoolExecutor(len(WAITS)) as threads:
        waiting = started(service, WAITS, {"reconnect": 60}, threads)
        service.kill()
        time.sleep(1)  # while no manager runs at all
        service.resume()
        assert not any(one.done() for one in waiting)
        (service.wd / "release").touch()
        assert waiting[0].result(PATIENCE) == {"long": "SUCCEED"}
        assert waiting[1].result(PATIENCE) is None
        assert waiting[2].result(PATIENCE) == ("long", "SUCCEED")
        assert waiting[3].result(PATIENCE) == [("long", "SUCCEED")]


def test_queries_continue_with_the_resumed_manager_after_a_reconnect(service: Served):
    with Manager.of_run(service.run_dir, {"reconnect": 60}) as manager, ThreadPoolExecutor(1) as other:
        service.kill()
        asked = other.submit(manager.list)
        time.sleep(0.5)
        service.resume()
        assert list(asked.result(PATIENCE)) == ["long"]
        assert manager.submit(Jobs().add(name="new", exec="true")) == ["new"]
        assert manager.wait4("new", 60) == {"new": "SUCCEED"}


def test_reconnecting_ends_after_its_timeout(service: Served):
    with Manager.of_run(service.run_dir, {"reconnect": 1}) as manager:
        service.kill()
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            manager.wait4("long")
        assert time.monotonic() - began < SECONDS
        with pytest.raises(TimeoutElapsed):
            manager.wait4("long", timeout=0.1)


def test_the_asyncio_client_reconnects_too(service: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(service.wd)

    async def scenario() -> None:
        async with AsyncManager() as impatient, AsyncManager(cfg={"reconnect": 60}) as patient:
            waits = [asyncio.ensure_future(impatient.wait4("long")) for _ in range(3)]
            patient_waits = [asyncio.ensure_future(patient.wait4("long")) for _ in range(3)]
            await asyncio.sleep(0.3)
            service.kill()
            for wait in waits:
                with pytest.raises(ConnectionError):
                    await asyncio.wait_for(wait, SECONDS)
            await asyncio.to_thread(service.resume)
            (service.wd / "release").touch()
            for wait in patient_waits:
                assert await asyncio.wait_for(wait, PATIENCE) == {"long": "SUCCEED"}
            assert list(await patient.list()) == ["long"]
            with pytest.raises(ConnectionError):
                await impatient.list()

    asyncio.run(scenario())


def test_the_agent_of_a_killed_manager_does_not_concern_the_client(service: Served):
    """The job of a killed service continues, so that the run can be resumed."""
    pid = int(service.data("jobInfo", jobNames=["long"])["jobs"]["long"]["data"]["runtime"]["pid"])
    service.kill()
    assert is_alive(pid)
    os.kill(pid, 0)
