"""An engine with its parts, for tests: a record of its actions, and a journal that can be broken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.variables import SubmissionContext
from qcg.pilotjob.executors.base import Executor, ExecutorObserver, HostState
from qcg.pilotjob.executors.contact_keeper import ContactKeeper
from qcg.pilotjob.host.records import Launch, NodeGrant, Running
from qcg.pilotjob.interfaces.factory import InterfaceFactory
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.launch.remote import remote_site
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.manager.bootstrap import assemble
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.observers import RunObserver
from qcg.pilotjob.manager.placement import find_placement
from qcg.pilotjob.manager.prepare import PreparedRun
from qcg.pilotjob.manager.shutdown_request import ShutdownRequest
from qcg.pilotjob.report.writer import ReportWriter
from qcg.pilotjob.wire.hub import Hub
from tests.support.memory_executor import MemoryExecutor
from tests.support.pilot import job
from tests.support.waiting import wait_for

GRANT: list[NodeGrant] = [("n0", (0,), ())]


class NotedJournal(Journal):
    """Records its commits and syncs in the list in which the executor records its messages."""

    happened: list[str]
    broken = False
    unsyncable = False
    on_sync: Callable[[], object] = staticmethod(lambda: None)
    """Called in the thread that syncs, for tests of events during a sync."""

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


class NotedNotices(RunObserver):
    def __init__(self) -> None:
        self.noted: list[str] = []

    def notice(self, text: str) -> None:
        self.noted.append(text)

    def warning(self, text: str) -> None:
        self.noted.append(f"Warning: {text}")


class MemoryHosts(MemoryExecutor):
    """Hosts in memory, some of them remote."""

    def __init__(self, observer: ExecutorObserver, hosts: Mapping[str, list[str]], sent: list[str]) -> None:
        super().__init__(observer, hosts, sent)
        self.launches: list[Launch] = []
        """All launches, also for hosts that are not ready."""
        self.remote: dict[str, HostState] = {}
        """The states of remote hosts."""

    def launch(self, node: str, launch: Launch) -> None:
        self.launches.append(launch)
        super().launch(node, launch)

    def host_states(self) -> Mapping[str, HostState]:
        return self.remote

    def reconnect(self, host: str) -> bool:
        self.sent += [f"reconnect {host}"] if host in self.remote else []
        return host in self.remote

    def forget(self, host: str) -> None:
        self.sent.append(f"forget {host}")

    async def poll(self, hosts: Collection[str]) -> None:
        self.sent += [f"poll {host}" for host in sorted(hosts)]


class Wired:
    """An engine with its parts, and a record of their actions."""

    def __init__(
        self, directory: Path, hosts: dict[str, list[str]], fallback_node: str, remote: Sequence[str] = ()
    ) -> None:
        """`remote`: the names of remote hosts, which are also the names of their nodes."""
        self.happened: list[str] = []
        journal = NotedJournal.create(directory / "registry.sqlite")
        assert isinstance(journal, NotedJournal)
        self.journal = journal
        self.journal.happened = self.happened
        report = ReportWriter(directory / "jobs.report", "json")
        specs = [
            NodeSpec(node, (0, 1), group=host if host in remote else "")
            for host, nodes in hosts.items()
            for node in nodes
        ]
        core = Core(specs, fallback_node=fallback_node)
        self.executor: MemoryHosts

        def make_executor(observer: ExecutorObserver) -> Executor:
            self.executor = MemoryHosts(observer, hosts, self.happened)
            return self.executor

        sites = {name: remote_site(name, "i", directory="qcg-run/i") for name in remote}
        site = Site(str(directory), "i")
        self.engine = Engine(core, journal, report, site, make_executor, ShutdownRequest(), sites)
        self.engine.executor.start()

    def notices(self) -> list[str]:
        """All notices from now on."""
        observer = NotedNotices()
        self.engine.observers.subscribe(observer)
        return observer.noted

    def reported(self, *live: Running) -> None:
        """Connect the first host."""
        self.executor.connect("local", *live)

    async def until(self, what: str) -> None:
        await asyncio.to_thread(wait_for, lambda: what in self.happened, what=what)

    async def until_all_is_written(self) -> None:
        engine, loop = self.engine, asyncio.get_running_loop()

        async def is_written() -> bool:
            return engine.commits.is_idle

        # Checked in the event loop: outside of it, a running commit looks like an unneeded one.
        await asyncio.to_thread(wait_for, lambda: asyncio.run_coroutine_threadsafe(is_written(), loop).result())


def jobs(*names: str, **more: Any) -> list[JobDescription]:
    return parse_jobs(
        [job(name, "true", **more) for name in names], SubmissionContext(1, datetime(2026, 1, 1), "local", "u")
    )


ONE_HOST = {"local": ["n0"]}
TWO_HOSTS = {"local": ["n0"], "n1": ["n1"]}


def run(
    tmp_path: Path,
    test: Callable[[Wired], Awaitable[None]],
    hosts: dict[str, list[str]] = ONE_HOST,
    fallback_node: str = "",
    remote: Sequence[str] = (),
) -> None:
    async def within() -> None:
        wired = Wired(tmp_path, hosts, fallback_node, remote)
        await asyncio.wait_for(test(wired), 100)
        wired.journal.broken = False
        await wired.engine.close()

    asyncio.run(within())


def assemble_resumed(options: Options, wd: Path, run_dir: Path, journal: Journal) -> Manager:
    """A manager with the jobs of an earlier manager, which has not started yet."""
    requests = InterfaceFactory().read_file(msgspec.structs.replace(options, file_path=None))
    prepared = PreparedRun(wd, run_dir, options, journal, find_placement(options), requests, None, is_resumed=True)
    hub = Hub()
    try:
        return assemble(prepared, hub, ContactKeeper(lambda: None))
    finally:
        hub.close()
