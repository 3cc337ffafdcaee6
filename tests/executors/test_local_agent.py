"""When the agent of this host is given up, also while the manager is busy."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.executors import local_agent
from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.executors.local_agent import LocalAgent
from qcg.pilotjob.executors.process import WatchedProcess
from tests.executors.fake_agents import FakePort, NotingObserver, agent_executor


class Local:
    """An executor with the agent of this host, and its reports."""

    def __init__(self, run_dir: Path, linger: float = 600.0, **more: Any) -> None:
        self.observer = NotingObserver()
        self.port = FakePort()

        def supervise(executor: AgentExecutor) -> LocalAgent:
            self.agent = LocalAgent(executor, self.observer, run_dir, linger, **more)
            return self.agent

        self.executor = agent_executor(self.observer, {local_agent.NAME: ["n0"]}, self.port, supervise)

    def hello(self, pid: int, *, peer: str = "it", host: str = "host", **more: Any) -> None:
        self.port.hello(local_agent.NAME, peer, host, pid, **more)

    def report(self, peer: str = "it") -> None:
        self.port.say(peer, protocol.Report([], []))


def started_agents(monkeypatch: pytest.MonkeyPatch) -> list[WatchedProcess]:
    """The processes that are started from now on in place of agents."""
    started: list[WatchedProcess] = []

    def start(run_dir: Path, name: str, linger: float, on_exit: Any, **more: Any) -> WatchedProcess:
        child = subprocess.Popen(["sleep", "1000"])
        started.append(WatchedProcess(child.pid, child, on_exit))
        return started[-1]

    monkeypatch.setattr(local_agent, "start_agent", start)
    return started


def stand_still() -> None:
    """Block the event loop as a large submission does."""
    time.sleep(0.5)


def test_time_in_which_the_manager_was_busy_does_not_count_for_an_agent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local_agent, "CHECK_INTERVAL", 0.05)

    async def scenario() -> bool:
        connected = False
        waiting = asyncio.ensure_future(local_agent._happens(lambda: connected, 3))
        await asyncio.sleep(0)
        stand_still()  # for much longer than the timeout of the agent
        await asyncio.sleep(0)
        connected = True
        return await waiting

    assert asyncio.run(scenario())


def test_an_agent_that_does_not_connect_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local_agent, "CHECK_INTERVAL", 0.01)
    assert not asyncio.run(local_agent._happens(lambda: False, 3))


@pytest.mark.parametrize("has_worked", [False, True])
def test_only_an_agent_that_may_have_jobs_is_left_to_the_next_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_worked: bool
):
    child = subprocess.Popen(["sleep", "1000"])
    monkeypatch.setattr(
        local_agent,
        "start_agent",
        lambda run_dir, name, linger, on_exit, **_: WatchedProcess(child.pid, child, on_exit),
    )

    async def scenario() -> None:
        local = Local(tmp_path)
        local.executor.start()
        local.hello(child.pid)
        if has_worked:
            local.report()
        local.executor.close()

    asyncio.run(scenario())
    child.returncode = None  # the process was released, so no warning about it is due
    if has_worked:
        assert child.poll() is None
        child.kill()
    assert child.wait() == -signal.SIGKILL


def test_a_late_agent_is_kept_when_its_replacement_exits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An agent that is wrongly believed dead would get its jobs a second time."""
    late, second = (subprocess.Popen(["sleep", "1000"]) for _ in range(2))
    monkeypatch.setattr(
        local_agent,
        "start_agent",
        lambda run_dir, name, linger, on_exit, **_: WatchedProcess(second.pid, second, on_exit),
    )

    async def scenario() -> None:
        local = Local(tmp_path)
        local.executor.start()
        agent = local.agent
        # Its pid file may be gone.
        local.hello(late.pid, peer="late", host=socket.gethostname())
        local.report("late")
        watched = agent._process
        assert watched is not None
        watched.kill()
        await watched.exited.wait()
        assert local.executor.agents[local_agent.NAME].ready
        assert agent._process is not None
        assert agent._process.pid == late.pid
        local.executor.close()

    asyncio.run(scenario())
    late.kill()
    late.wait()


def test_a_bye_that_arrives_after_the_exit_of_the_agent_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Otherwise another agent is started, for jobs that this one may have left."""
    started = started_agents(monkeypatch)

    async def scenario() -> None:
        local = Local(tmp_path, 0.0)
        local.executor.start()
        local.hello(started[0].pid)
        ending = asyncio.ensure_future(local.executor.shut_down(0.0, "closed"))
        await asyncio.sleep(0)
        started[0].kill()
        await started[0].exited.wait()
        local.port.say("it", protocol.Bye())
        await ending

    asyncio.run(scenario())
    assert len(started) == 1


def test_an_agent_that_connects_and_dies_is_replaced_at_once_and_the_next_one_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    started = started_agents(monkeypatch)

    async def scenario() -> None:
        seconds = 0.0
        local = Local(tmp_path, now=lambda: seconds)
        agent = local.agent
        local.executor.start()

        async def connects_and_dies() -> None:
            peer, process = str(len(started)), started[-1]
            local.hello(process.pid, peer=peer, host=socket.gethostname())
            local.report(peer)
            process.kill()
            await process.exited.wait()

        await connects_and_dies()
        assert len(started) == 2
        await connects_and_dies()
        assert len(started) == 2, "not before the pause is over"
        assert "another one is started in 0.5 s" in caplog.text
        agent._start_again()
        seconds += 1000.0
        await connects_and_dies()
        assert len(started) == 4, "after a long life it is replaced at once"
        started[-1].kill()
        await started[-1].exited.wait()
        local.executor.close()

    asyncio.run(scenario())


def test_an_agent_of_another_version_is_not_used_and_the_reason_says_what_to_do(tmp_path: Path):
    async def scenario() -> None:
        local = Local(tmp_path)
        local.hello(4711, version="0.9", protocol=protocol.PROTOCOL - 1)
        assert local.port.sent == []
        [(reason,)] = local.observer.noted("failed")
        assert "agent local (pid 4711 on host) belongs to another version of QCG-PilotJob (0.9)" in reason
        assert "`kill 4711`" in reason

    asyncio.run(scenario())
