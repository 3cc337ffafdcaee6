"""The engine between core, journal and executor: what must have happened before what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.agent.protocol import EndedRecord, Record, StartedRecord
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.variables import Arrival
from qcg.pilotjob.engine import Engine
from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.host.records import Ended, Launch, NodeGrant, Running, Started
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.report.writer import ReportWriter
from tests.support.pilot import job
from tests.support.waiting import wait_for

GRANT: list[NodeGrant] = [("n0", (0,), ())]


class NotedJournal(Journal):
    """Writes down when it commits and syncs, in the same list as the executor when it sends."""

    happened: list[str]
    broken = False

    def commit(self) -> None:
        if self.broken:
            raise JournalError("The disk is full.")
        super().commit()
        self.happened.append("commit")

    def sync(self) -> None:
        super().sync()
        self.happened.append("sync")


class NotedExecutor(AgentExecutor):
    happened: list[str]

    def launch(self, node: str, launch: Launch) -> None:
        self.happened.append(f"launch {launch.id}")

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
        executor = NotedExecutor(self.engine, {"local": ["n0"]}, {})
        executor.happened = self.happened
        self.engine.executor = executor

    def reported(self, *live: Running) -> None:
        self.engine.agent_ready("local", ["n0"], list(live))

    async def until(self, what: str) -> None:
        await asyncio.to_thread(wait_for, lambda: what in self.happened, what=what)


def jobs(*names: str, **more: Any) -> list[JobDescription]:
    return parse_jobs([job(name, "true", **more) for name in names], Arrival(1, datetime(2026, 1, 1), "local", "u"))


def run(tmp_path: Path, test: Callable[[Wired], Awaitable[None]]) -> None:
    async def within() -> None:
        wired = Wired(tmp_path)
        await asyncio.wait_for(test(wired), 20)
        wired.journal.broken = False
        await wired.engine.close()

    asyncio.run(within())


def test_that_an_attempt_was_given_up_is_committed_before_the_next_one_starts(tmp_path: Path):
    """Else a manager that comes after a crash would not know what the second attempt is."""

    async def test(wired: Wired) -> None:
        wired.reported()
        await wired.engine.submit(jobs("one"))
        await wired.until("launch 1.1")
        wired.happened.clear()
        wired.reported()  # and the agent has not got it
        await wired.until("launch 1.2")
        assert wired.happened.index("commit") < wired.happened.index("launch 1.2")

    run(tmp_path, test)


def test_no_next_attempt_starts_while_nothing_can_be_committed(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.reported()
        await wired.engine.submit(jobs("one"))
        await wired.until("launch 1.1")
        wired.journal.broken = True
        wired.reported()
        await asyncio.sleep(0.2)
        assert "launch 1.2" not in wired.happened
        wired.journal.broken = False
        await wired.until("launch 1.2")

    run(tmp_path, test)


def test_records_are_acknowledged_once_they_are_synced(tmp_path: Path):
    """Else a machine that dies takes from the journal what the agent has forgotten."""

    async def test(wired: Wired) -> None:
        wired.reported()
        await wired.engine.submit(jobs("one"))
        await wired.until("launch 1.1")
        wired.happened.clear()
        told: list[Record] = [
            StartedRecord(1, Started("1.1", 7, 1.0, GRANT)),
            EndedRecord(2, Ended("1.1", 2.0, 0, "exit", "", 7, 1.0)),
        ]
        wired.engine.agent_told("local", told)
        await wired.until("acknowledge 2")
        assert [what for what in wired.happened if not what.startswith("launch")] == ["commit", "sync", "acknowledge 2"]

    run(tmp_path, test)


def test_a_submission_that_cannot_be_stored_leaves_no_trace(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.journal.broken = True
        with pytest.raises(JournalError):
            await wired.engine.submit(jobs("too-large", numCores=3))
        assert wired.engine.state.jobs == {}
        assert wired.engine.all_done.is_set()
        wired.journal.broken = False
        await wired.engine.submit(jobs("fits"))

    run(tmp_path, test)
    assert (tmp_path / "jobs.report").read_bytes() == b""
