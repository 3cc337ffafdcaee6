"""An engine with its rooms, for tests: what happened in them, and a journal that can be broken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.variables import SubmissionContext
from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.host.records import Launch, NodeGrant, Running
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.report.writer import ReportWriter
from tests.support.pilot import job
from tests.support.waiting import wait_for

GRANT: list[NodeGrant] = [("n0", (0,), ())]


class NotedJournal(Journal):
    """Writes down when it commits and syncs, in the same list as the executor when it sends."""

    happened: list[str]
    broken = False
    unsyncable = False
    on_sync: Callable[[], object] = staticmethod(lambda: None)
    """For tests that want something to happen meanwhile; called in the thread that syncs."""

    def commit(self) -> None:
        if self.broken:
            raise JournalError("The disk is full.")
        super().commit()
        self.happened.append("commit")

    def sync(self) -> None:
        self.on_sync()
        if self.unsyncable:
            raise JournalError("The disk is broken.")
        super().sync()
        self.happened.append("sync")


class NotedExecutor(AgentExecutor):
    happened: list[str]

    def launch(self, node: str, launch: Launch) -> None:
        self.happened.append(f"launch {launch.id}")

    def sweep(self, node: str, attempt_id: str, grace: float = 0.0) -> None:
        self.happened.append(f"sweep {attempt_id} on {node}")

    def acknowledge(self, seen: dict[str, int]) -> None:
        self.happened += [f"acknowledge {number}" for number in seen.values()]


class Wired:
    """An engine with its rooms, and what happened in them."""

    def __init__(self, directory: Path) -> None:
        self.happened: list[str] = []
        journal = NotedJournal.create(directory / "registry.sqlite")
        assert isinstance(journal, NotedJournal)
        self.journal = journal
        self.journal.happened = self.happened
        report = ReportWriter(directory / "jobs.report", "json")
        self.engine = Engine(Core([NodeSpec("n0", (0, 1))]), journal, report, Site(str(directory), "i"))
        self._give_executor({"local": ["n0"]})

    def add_node(self, name: str) -> None:
        """With an agent of its own. Before anything has happened."""
        self.engine.core = Core([*self.engine.state.nodes, NodeSpec(name, (0, 1))])
        self._give_executor({"local": ["n0"], name: [name]})

    def _give_executor(self, agents: dict[str, list[str]]) -> None:
        executor = NotedExecutor(self.engine, agents, {})
        executor.happened = self.happened
        self.engine.executor = executor

    def reported(self, *live: Running) -> None:
        self.engine.agent_ready("local", ["n0"], list(live))

    async def until(self, what: str) -> None:
        await asyncio.to_thread(wait_for, lambda: what in self.happened, what=what)

    async def until_all_is_written(self) -> None:
        engine, loop = self.engine, asyncio.get_running_loop()

        async def is_written() -> bool:
            return not (engine._commit_timer or engine._sync_timer or engine._syncing)

        # Asked in the loop: from outside, a commit that is under way looks like one that nobody wants.
        await asyncio.to_thread(wait_for, lambda: asyncio.run_coroutine_threadsafe(is_written(), loop).result())


def jobs(*names: str, **more: Any) -> list[JobDescription]:
    return parse_jobs(
        [job(name, "true", **more) for name in names], SubmissionContext(1, datetime(2026, 1, 1), "local", "u")
    )


def run(tmp_path: Path, test: Callable[[Wired], Awaitable[None]]) -> None:
    async def within() -> None:
        wired = Wired(tmp_path)
        await asyncio.wait_for(test(wired), 100)
        wired.journal.broken = False
        await wired.engine.close()

    asyncio.run(within())
