"""Agents of many nodes: when jobs may start, with stubs of the start commands."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.agent.connection import SLOW_READ_INTERVAL
from qcg.pilotjob.agent.manager_liveness import STALE
from qcg.pilotjob.executors import allocation_agents
from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.executors.allocation_agents import AllocationAgents, NodeLayouts
from qcg.pilotjob.executors.base import NodeLayout
from qcg.pilotjob.executors.contact_keeper import ContactKeeper
from qcg.pilotjob.executors.liveness import AgentState, LivenessTimes
from qcg.pilotjob.host import process_tree
from qcg.pilotjob.host.ledger import Ledger, OpenStart
from qcg.pilotjob.host.records import Ended, Started
from qcg.pilotjob.wire.timing import CONTACT_INTERVAL
from tests.executors.fake_agents import FakePort, NotingObserver, agent_executor
from tests.support.waiting import wait_for

NAMES = ["n1", "n2", "n3", "n4"]


class Commands:
    """Replaces `srun`."""

    def __init__(self, *command: str) -> None:
        self._command = list(command)
        self.command_keeps_agents_alive = False
        self.environ = dict(os.environ)
        self.groups: list[list[str]] = []

    def commands(self, names: list[str], replace_after: float | None) -> list[tuple[list[str], list[str]]]:
        self.groups.append(list(names))
        return [(list(names), self._command)]


class NoLayouts(NodeLayouts):
    def layout_of(self, hello: protocol.Hello) -> NodeLayout:
        return NodeLayout()

    def notices(self) -> list[str]:
        return []


class Supervised(NotingObserver):
    def __init__(self, run_dir: Path, commands: Commands, threshold: float, times: LivenessTimes) -> None:
        super().__init__()
        self.contact = ContactKeeper(lambda: None)

        def supervise(executor: AgentExecutor) -> AllocationAgents:
            self.agents = AllocationAgents(
                executor,
                self,
                commands,  # type: ignore[arg-type]
                run_dir,
                self.contact,
                NoLayouts(),
                times,
                threshold,
            )
            return self.agents

        self.executor = agent_executor(self, {name: [name] for name in NAMES}, FakePort(), supervise)

    @property
    def gathered(self) -> list[list[str]]:
        """The sentences about missing agents, for each time that enough agents were connected."""
        return [list(notices) for notices in self.noted("gathered")]

    @property
    def hopeless(self) -> list[str]:
        return [reason for (reason,) in self.noted("failed")]

    @property
    def lost(self) -> list[str]:
        return [node for (nodes,) in self.noted("lost") for node in nodes]

    def ready(self, *names: str) -> None:
        for name in names:
            self.agents.ready(name)

    async def until(self, condition: Callable[[], object]) -> None:
        await asyncio.to_thread(wait_for, condition)


def run(
    run_dir: Path,
    test: Callable[[Supervised], Awaitable[None]],
    commands: Commands,
    threshold: float = 1.0,
    times: LivenessTimes | None = None,
) -> None:
    async def within() -> None:
        supervised = Supervised(run_dir, commands, threshold, times or LivenessTimes())
        supervised.executor.start()
        try:
            await test(supervised)
        finally:
            for process in list(supervised.agents._starters):
                process.kill()
                await process.exited.wait()
            supervised.executor.close()

    asyncio.run(within())


@pytest.mark.parametrize("has_connected", [False, True])
def test_abandoned_start_commands_are_killed_unless_an_agent_has_connected(run_dir: Path, has_connected: bool):
    """Otherwise it would start agents after the end of the manager."""

    async def test(supervised: Supervised) -> None:
        if has_connected:
            supervised.ready("n1")
        (process,) = supervised.agents._starters
        supervised.executor.close()
        if not has_connected:
            await supervised.until(lambda: _is_dead(process.pid))
            return
        assert not _is_dead(process.pid)
        os.kill(process.pid, signal.SIGKILL)

    run(run_dir, test, Commands("sleep", "1000"))


def _is_dead(pid: int) -> bool:
    found = process_tree.read_process(pid)
    return found is None or found.dead


def test_one_command_starts_all_agents_and_jobs_start_when_all_are_ready(run_dir: Path):
    commands = Commands("sleep", "1000")

    async def test(supervised: Supervised) -> None:
        supervised.ready("n1", "n2", "n3")
        assert supervised.gathered == []
        supervised.ready("n4")
        assert supervised.gathered == [[]]

    run(run_dir, test, commands)
    assert commands.groups == [NAMES]


def test_with_a_threshold_jobs_start_once_the_start_command_cannot_fail_any_more(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    async def test(supervised: Supervised) -> None:
        supervised.ready("n1", "n2", "n4")
        assert supervised.gathered == []  # the command that started them may still end all of them
        monkeypatch.setattr(allocation_agents, "SETTLING", 0.0)
        await supervised.until(lambda: supervised.gathered)
        assert supervised.gathered == [["no agent has connected from n3 so far; jobs are started on the other nodes"]]

    run(run_dir, test, Commands("sleep", "1000"), threshold=0.75)


def test_agents_that_never_connect_are_lost_and_jobs_start_without_them(run_dir: Path):
    async def test(supervised: Supervised) -> None:
        supervised.ready("n1", "n2")
        await supervised.until(lambda: supervised.gathered)
        [[notice]] = supervised.gathered
        assert notice == "no agent has connected from n3, n4 so far; jobs are started on the other nodes"
        assert supervised.lost == ["n3", "n4"]
        assert supervised.hopeless == []

    run(run_dir, test, Commands("sleep", "1000"), times=LivenessTimes(25.0, 0.7))


def test_jobs_wait_for_at_least_one_agent(run_dir: Path):
    async def test(supervised: Supervised) -> None:
        assert (supervised.gathered, supervised.hopeless) == ([], [])

    run(run_dir, test, Commands("sleep", "1000"), threshold=0.0)


def test_the_executor_fails_without_any_agent(run_dir: Path):
    async def test(supervised: Supervised) -> None:
        await supervised.until(lambda: supervised.hopeless)
        assert supervised.gathered == []
        assert "no agent has connected" in supervised.hopeless[0]
        assert supervised.hopeless[0].endswith("agents.log says: not yet")

    run(run_dir, test, Commands("sh", "-c", "echo not yet; exec sleep 1000"), times=LivenessTimes(25.0, 0.7))


def test_a_failed_start_command_is_repeated_for_each_node_before_the_executor_fails(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    commands = Commands("false")
    monkeypatch.setattr(allocation_agents, "TICK", 0.05)

    async def test(supervised: Supervised) -> None:
        await supervised.until(lambda: supervised.hopeless)

    run(run_dir, test, commands)
    assert commands.groups[0] == NAMES
    assert all(len(group) == 1 for group in commands.groups[1:])


def test_the_executor_fails_when_the_start_command_does_not_exist(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(allocation_agents, "TICK", 0.05)

    async def test(supervised: Supervised) -> None:
        await supervised.until(lambda: supervised.hopeless)
        assert "no-such-program cannot be started" in supervised.hopeless[0]

    run(run_dir, test, Commands("no-such-program"))


class SshCommands(Commands):
    """One command a node; that of n2 fails."""

    def commands(self, names: list[str], replace_after: float | None) -> list[tuple[list[str], list[str]]]:
        self.groups.append(list(names))
        denied = ["sh", "-c", "echo first; echo 'me@n2: Permission denied (publickey).' >&2; exit 255"]
        return [([name], denied if name == "n2" else ["sleep", "1000"]) for name in names]


def test_the_first_failed_start_of_a_node_is_reported_with_its_reason(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(allocation_agents, "TICK", 0.05)
    commands = SshCommands()

    async def test(supervised: Supervised) -> None:
        supervised.ready("n1", "n3", "n4")
        await supervised.until(lambda: sum("n2" in group for group in commands.groups) >= 2)
        await supervised.until(lambda: supervised.noted("notice"))
        [(notice,)] = supervised.noted("notice")
        reason, _, waiting = notice.partition("; ")
        assert reason == "n2: sh failed: me@n2: Permission denied (publickey)"
        assert waiting == "waiting up to 600 s for its agent (--nl-init-timeout)"
        assert supervised.gathered == []

    run(run_dir, test, commands)


def test_an_executor_that_fails_quotes_the_last_output(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(allocation_agents, "TICK", 0.05)

    async def test(supervised: Supervised) -> None:
        await supervised.until(lambda: supervised.hopeless)
        assert "sh failed: srun: error: no such partition" in supervised.hopeless[0]

    run(run_dir, test, Commands("sh", "-c", "echo 'srun: error: no such partition' >&2; exit 1"))


SHEPHERD = """
import os, time
reads, writes = os.pipe()
if os.fork():
    time.sleep(1000)
os.close(writes)
open("watching", "w").close()
os.read(reads, 1)
open("acted", "w").close()
"""
"""A stub of `srun`: a child that acts when its parent has ended."""


def test_a_start_command_is_ended_once_all_its_agents_are_ready(run_dir: Path):
    commands = Commands(sys.executable, "-c", SHEPHERD)

    async def test(supervised: Supervised) -> None:
        [process] = supervised.agents._starters
        await supervised.until((run_dir / "watching").exists)
        supervised.ready("n1", "n2", "n3")
        assert not process.exited.is_set()
        supervised.ready("n4")
        await asyncio.wait_for(process.exited.wait(), 60)
        await supervised.until(
            lambda: not process_tree.Snapshot().session(process.pid)
        )  # a killed child may die after it
        assert not (run_dir / "acted").exists()
        assert supervised.agents._starters == {}
        supervised.agents._tick()

    run(run_dir, test, commands)
    assert commands.groups == [NAMES]


def test_a_lost_node_gets_a_start_command_of_its_own(run_dir: Path):
    commands = Commands("sleep", "1000")

    async def test(supervised: Supervised) -> None:
        [process] = supervised.agents._starters
        supervised.ready("n1", "n2", "n3")
        await asyncio.wait_for(process.exited.wait(), 60)
        assert supervised.lost == ["n4"]
        await supervised.until(lambda: len(commands.groups) > 1)

    run(run_dir, test, commands, times=LivenessTimes(25.0, 0.7))
    assert commands.groups[:2] == [NAMES, ["n4"]]


def test_a_start_command_is_kept_if_its_agents_would_end_with_it(run_dir: Path):
    commands = Commands("sleep", "1000")
    commands.command_keeps_agents_alive = True

    async def test(supervised: Supervised) -> None:
        [process] = supervised.agents._starters
        supervised.ready(*NAMES)
        await asyncio.sleep(0.2)
        assert not process.exited.is_set()

    run(run_dir, test, commands)


class OwnAgents(Commands):
    """Commands that are the agents: each of them writes its pid into the file of its node."""

    def commands(self, names: list[str], replace_after: float | None) -> list[tuple[list[str], list[str]]]:
        self.groups.append(list(names))
        script = "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000"
        return [([name], ["sh", "-c", script.format(name)]) for name in names]


async def speak_for(supervised: Supervised, run_dir: Path, ended: Callable[[], object]) -> None:
    """Connect each process of `OwnAgents` once, and send messages of it while it lives."""
    connected: dict[str, int] = {}
    deadline = time.monotonic() + 60
    while not ended():
        assert time.monotonic() < deadline
        for name in NAMES:
            pid = int((run_dir / name).read_text()) if (run_dir / name).exists() else 0
            if pid and not _is_dead(pid):
                supervised.agents.message_received(name)
                if connected.get(name) != pid:
                    connected[name] = pid
                    supervised.ready(name)
        await asyncio.sleep(0.02)


def test_agents_that_end_with_their_start_command_twice_are_noticed_and_it_is_kept(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(allocation_agents, "TICK", 0.05)
    commands = OwnAgents()

    async def test(supervised: Supervised) -> None:
        def all_live() -> bool:
            states = [agent.state for agent in supervised.agents._liveness.values()]
            return len(supervised.agents._starters) == len(NAMES) and set(states) == {AgentState.READY}

        await speak_for(supervised, run_dir, lambda: supervised.noted("notice") and all_live())
        starts = len(commands.groups)
        later = time.monotonic() + 1.5
        await speak_for(supervised, run_dir, lambda: time.monotonic() > later)
        assert len(commands.groups) == starts, "no agent was started again"
        assert all_live()

    run(run_dir, test, commands, times=LivenessTimes(2.5, 600.0))
    started = [name for group in commands.groups for name in group]
    assert sorted(started) == sorted(3 * NAMES)


def test_the_user_is_told_once_which_agents_end_with_their_start_command(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    async def test(supervised: Supervised) -> None:
        for _ in range(3):
            supervised.agents._kills.killed(["n1", "n2"], time.monotonic())
            supervised.agents._check_kills(["n1", "n2", "n3"])
        assert supervised.noted("notice") == [
            ("the agents of n1, n2 ended with the command that started them (sleep); from now on it is kept running",)
        ]

    run(run_dir, test, Commands("sleep", "1000"))


def test_records_in_the_ledger_of_a_lost_agent_are_reported_before_its_node_is_lost(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(allocation_agents, "TICK", 0.05)
    monkeypatch.setattr(allocation_agents, "LEDGER_TIMEOUT", 60.0)
    ledger = Ledger(str(run_dir / "agent-n4.ledger"))
    ledger.starting("1.1", "pilot.1.1", [])
    ledger.started("1.1", OpenStart("pilot.1.1", 7, 1.0, [], 0, 0))
    ledger.ended(Ended("1.1", 2.0, 0, "exit", "", 7, 1.0))
    ledger.flush()
    size = Path(ledger.path).stat().st_size
    happened: list[object] = []

    async def test(supervised: Supervised) -> None:
        supervised.ready(*NAMES)
        supervised.agents._liveness["n4"].heard -= 1000
        supervised.agents._liveness["n4"]._heartbeat -= 1000
        await supervised.until(lambda: supervised.lost)
        happened.extend(supervised.seen[-2:])
        assert supervised.executor.agents["n4"].seen == 2

    run(run_dir, test, Commands("sleep", "1000"))
    assert happened == [("records", "n4", [(1, "1.1"), (2, "1.1")]), ("lost", ["n4"])]
    assert Path(ledger.path).stat().st_size == size
    ledger.close()


def test_a_node_whose_agent_comes_back_in_time_is_not_lost(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    reading, reads = threading.Event(), threading.Event()

    def read(run_dir: Path, name: str) -> list[tuple[int, Started | Ended]]:
        reads.set()
        reading.wait(20)
        return []

    monkeypatch.setattr(allocation_agents, "read_ledger", read)
    monkeypatch.setattr(allocation_agents, "TICK", 0.05)

    async def test(supervised: Supervised) -> None:
        supervised.ready(*NAMES)
        supervised.agents._liveness["n4"].heard -= 1000
        supervised.agents._liveness["n4"]._heartbeat -= 1000
        await supervised.until(reads.is_set)
        supervised.executor.agents["n4"].given_up = False  # as it reports
        [losing] = supervised.agents._losing
        reading.set()
        await losing
        assert supervised.lost == []

    run(run_dir, test, Commands("sleep", "1000"))


def test_a_node_is_lost_also_when_its_ledger_cannot_be_copied(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    def read(run_dir: Path, name: str) -> list[tuple[int, Started | Ended]]:
        raise OSError(errno.ENOSPC, "no temporary directory")

    monkeypatch.setattr(allocation_agents, "read_ledger", read)
    monkeypatch.setattr(allocation_agents, "TICK", 0.05)

    async def test(supervised: Supervised) -> None:
        supervised.ready(*NAMES)
        supervised.agents._liveness["n4"].heard -= 1000
        supervised.agents._liveness["n4"]._heartbeat -= 1000
        await supervised.until(lambda: supervised.lost)

    run(run_dir, test, Commands("sleep", "1000"))


def test_no_node_is_lost_while_the_contact_file_is_stale(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(allocation_agents, "TICK", 0.05)

    async def test(supervised: Supervised) -> None:
        supervised.ready(*NAMES)
        supervised.agents._began -= allocation_agents.CONTACT_TIMEOUT
        supervised.agents._tick()
        supervised.agents._liveness["n4"].heard -= 1000
        supervised.agents._liveness["n4"]._heartbeat -= 1000
        supervised.agents._tick()
        seen = [supervised.agents._liveness["n4"].state]
        supervised.contact.refreshed_at = time.monotonic() + 1000
        supervised.agents._liveness["n4"]._heartbeat -= 1000
        supervised.agents._tick()
        seen.append(supervised.agents._liveness["n4"].state)
        assert seen == [AgentState.AWAY, AgentState.LOST]

    run(run_dir, test, Commands("sleep", "1000"))


def test_agents_take_the_manager_for_dead_later_than_it_notices_a_stale_contact_file():
    assert CONTACT_INTERVAL + allocation_agents.TICK < allocation_agents.CONTACT_TIMEOUT
    assert allocation_agents.CONTACT_TIMEOUT + SLOW_READ_INTERVAL < STALE


class MostHostsDown(Commands):
    """One command a node; only that of n4 does not fail."""

    def commands(self, names: list[str], replace_after: float | None) -> list[tuple[list[str], list[str]]]:
        self.groups.append(list(names))
        return [([name], ["sleep", "1000"] if name == "n4" else ["false"]) for name in names]


def test_hosts_that_are_down_do_not_end_a_run_whose_last_host_is_still_starting(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(allocation_agents, "TICK", 0.02)
    commands = MostHostsDown()

    async def test(supervised: Supervised) -> None:
        await supervised.until(lambda: len(commands.groups) > 3 * allocation_agents.MOST_FAILED_STARTS)
        assert supervised.hopeless == []
        supervised.agents.hello(protocol.Hello("n4", "n4", 1, [0], ""))
        supervised.ready("n4")
        assert supervised.gathered

    run(run_dir, test, commands, threshold=0.1)
