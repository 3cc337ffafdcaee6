"""The executor for remote hosts, which are reached with ssh and rsync alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.executors.base import Executor, ExecutorObserver, HostState
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.connection import Connector, RunIdentity, Setup
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.frames import Frame
from qcg.pilotjob.executors.ssh.job_files import JobFiles, NoJobFiles
from qcg.pilotjob.executors.ssh.link import HostLink
from qcg.pilotjob.executors.ssh.marker import FORGOTTEN, HostMarker, MarkedState, forgotten_message, read_states
from qcg.pilotjob.executors.ssh.notifications import NotificationListener, ssh_settings
from qcg.pilotjob.executors.ssh.orders import Orders
from qcg.pilotjob.host.records import EndReason, Launch
from qcg.pilotjob.wire.contact import AgentsContact


class RemoteHost(Struct, frozen=True):
    """A remote host of a run."""

    config: HostConfig
    setup: Setup = Setup()
    files: Callable[[ExecutorObserver], JobFiles] = lambda observer: NoJobFiles()


class SshExecutor(Executor):
    def __init__(
        self,
        observer: ExecutorObserver,
        hosts: Sequence[RemoteHost],
        run: RunIdentity,
        acked: Mapping[str, int],
    ) -> None:
        """`acked`: by `HOST/LEDGER`, the last record of each ledger that is in the journal."""
        self._observer = observer
        self._run_dir: Path = run.run_dir
        self._links: dict[str, HostLink] = {}
        self._launches: dict[str, list[Launch]] = {}
        self._orders: dict[str, Orders] = {}
        sends_messages = any(host.config.tracking == "messages" for host in hosts)
        self._listener = NotificationListener(self._news) if sends_messages else None
        for host in hosts:
            name = host.config.name
            own = {
                ledger.partition("/")[2]: number for ledger, number in acked.items() if ledger.partition("/")[0] == name
            }
            self._links[name] = self._link(host, run, own)

    def _link(self, host: RemoteHost, run: RunIdentity, acked: Mapping[str, int]) -> HostLink:
        name = host.config.name
        # The link has the numbers that the journal knows by now.
        setup = replace(host.setup, notify=self._notify(host.config))
        connector = Connector(host.config, run, setup, lambda: self._links[name].ledgers())
        return HostLink(connector, acked, self._observer, HostMarker(run.run_dir, name), host.files(self._observer))

    def _notify(self, config: HostConfig) -> dict[str, Any] | None:
        """How a host notifies this manager while no channel is open; None: the manager polls the host."""
        if config.tracking == "messages" and self._listener is not None:
            return self._listener.settings(config)
        return ssh_settings(config, self._run_dir) if config.tracking == "ssh" else None

    def _news(self, name: str) -> None:
        if name in self._links:
            self._links[name].poll_soon()

    @property
    def hosts(self) -> Mapping[str, Sequence[str]]:
        return {name: [name] for name in self._links}

    def open(self) -> AgentsContact | None:
        return None

    def start(self) -> None:
        if self._listener is not None:
            self._listener.start()
        used = read_states(self._run_dir)
        for name, link in self._links.items():
            marked = used.get(name, MarkedState())
            has_attempts = self._observer.has_attempts(name)
            if marked.state == FORGOTTEN and has_attempts:
                self._observer.nodes_lost([name], forgotten_message(name))
                has_attempts = False
            link.start(may_have_attempts=marked.may_have_attempts or has_attempts)
        self._observer.scheduling_may_begin([])

    def launch(self, node: str, launch: Launch) -> None:
        self._launches.setdefault(node, []).append(launch)

    def kill(self, node: str, attempt_id: str, reason: str = EndReason.CANCEL, message: str = "") -> None:
        self._orders_for(node).kill(attempt_id, reason, message)

    def retract(self, node: str, attempt_ids: list[str]) -> None:
        self._orders_for(node).retract(attempt_ids)

    def sweep(self, node: str, attempt_id: str) -> None:
        """Nothing to do: an attempt on a remote host has one node."""

    def same_host(self, node: str, other: str) -> bool:
        return node == other

    def signal(self, attempt_ids: Mapping[str, list[str]], number: int) -> None:
        for node, ids in attempt_ids.items():
            orders = Orders()
            orders.signal(ids, number)
            self._links[node].send([], orders)

    def flush(self) -> None:
        if not (self._launches or self._orders):
            return
        launches, self._launches = self._launches, {}
        orders, self._orders = self._orders, {}
        for name in launches.keys() | orders.keys():
            self._links[name].send(launches.get(name, []), orders.get(name, Orders()))

    def acknowledge(self, numbers: Mapping[str, int]) -> None:
        for host, number in numbers.items():
            name, _, ledger = host.partition("/")
            self._links[name].acknowledge(ledger, number)

    async def shut_down(self, grace: float, reason: str) -> None:
        await asyncio.gather(*(link.shut_down(grace, reason) for link in self._links.values()))

    def host_states(self) -> Mapping[str, HostState]:
        return {name: link.state for name, link in self._links.items()}

    def reconnect(self, host: str) -> bool:
        if host not in self._links:
            return False
        self._links[host].retry_now()
        return True

    def forget(self, host: str) -> None:
        self._links[host].forget()

    async def poll(self, hosts: Collection[str]) -> None:
        await asyncio.gather(*(self._links[host].poll() for host in hosts))

    def hurry(self) -> None:
        for link in self._links.values():
            link.hurry()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for link in self._links.values():
            link.close()

    # -- for requests about hosts ---------------------------------------------------------------------------------

    async def call(self, name: str, request: dict[str, Any], payload: bytes = b"") -> Frame:
        """Send a request to a connected host. Raises ConnectionProblem, RemoteError."""
        connection = self._links[name].connection
        if connection is None:
            raise ConnectionProblem(f"{name} is not connected")
        return await connection.call(request, payload)

    def poll_soon(self, name: str) -> None:
        """Poll a host at once."""
        self._links[name].poll_soon()

    def _orders_for(self, node: str) -> Orders:
        return self._orders.setdefault(node, Orders())
