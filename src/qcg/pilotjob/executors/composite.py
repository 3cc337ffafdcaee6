"""Several executors used as one, so that a run can have hosts that are reached in different ways."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from qcg.pilotjob.executors.base import (
    Executor,
    ExecutorFactory,
    ExecutorObserver,
    HostState,
    NodeLayout,
    NumberedRecord,
)
from qcg.pilotjob.host.records import Ended, EndReason, Launch, Running
from qcg.pilotjob.wire.contact import AgentsContact


def composite(factories: Sequence[ExecutorFactory]) -> ExecutorFactory:
    """One executor for all. A single one is used as it is, so that nothing is paid for routing."""
    if len(factories) == 1:
        return factories[0]
    return lambda observer: CompositeExecutor(observer, factories)


class CompositeExecutor(Executor):
    """Routes by node, and acknowledgements by host. No host and no node belongs to two executors."""

    def __init__(self, observer: ExecutorObserver, factories: Sequence[ExecutorFactory]) -> None:
        shared = _GatherAll(observer, len(factories))
        self._children = [factory(shared) for factory in factories]
        self._by_host = {host: executor for executor in self._children for host in executor.hosts}
        self._by_node = {
            node: executor for executor in self._children for nodes in executor.hosts.values() for node in nodes
        }
        self._hosts = {host: nodes for executor in self._children for host, nodes in executor.hosts.items()}
        if len(self._by_host) != sum(len(executor.hosts) for executor in self._children):
            raise ValueError("two executors have a host of the same name")
        if len(self._by_node) != sum(len(nodes) for nodes in self._hosts.values()):
            raise ValueError("two hosts have a node of the same name")

    @property
    def hosts(self) -> Mapping[str, Sequence[str]]:
        return self._hosts

    def open(self) -> AgentsContact | None:
        contacts = [contact for child in self._children if (contact := child.open()) is not None]
        if len(contacts) > 1:
            raise ValueError("the contact file has room for the hosts of one executor")
        return contacts[0] if contacts else None

    def start(self) -> None:
        for child in self._children:
            child.start()

    def launch(self, node: str, launch: Launch) -> None:
        self._by_node[node].launch(node, launch)

    def kill(self, node: str, attempt_id: str, reason: str = EndReason.CANCEL, message: str = "") -> None:
        self._by_node[node].kill(node, attempt_id, reason, message)

    def retract(self, node: str, attempt_ids: list[str]) -> None:
        self._by_node[node].retract(node, attempt_ids)

    def sweep(self, node: str, attempt_id: str) -> None:
        self._by_node[node].sweep(node, attempt_id)

    def same_host(self, node: str, other: str) -> bool:
        executor = self._by_node[node]
        return executor is self._by_node[other] and executor.same_host(node, other)

    def signal(self, attempt_ids: Mapping[str, list[str]], number: int) -> None:
        for node, ids in attempt_ids.items():
            self._by_node[node].signal({node: ids}, number)

    def flush(self) -> None:
        for child in self._children:
            child.flush()

    def acknowledge(self, numbers: Mapping[str, int]) -> None:
        for child in self._children:
            own = {name: number for name, number in numbers.items() if self._by_host[host_of(name)] is child}
            if own:
                child.acknowledge(own)

    async def shut_down(self, grace: float, reason: str) -> None:
        """One that fails does not keep the others from ending: the first error is raised when all have returned."""
        ends = [child.shut_down(grace, reason) for child in self._children]
        for result in await asyncio.gather(*ends, return_exceptions=True):
            if result is not None:
                raise result

    def host_states(self) -> Mapping[str, HostState]:
        return {host: state for child in self._children for host, state in child.host_states().items()}

    def reconnect(self, host: str) -> bool:
        return any(child.reconnect(host) for child in self._children)

    def forget(self, host: str) -> None:
        self._by_host[host].forget(host)

    async def poll(self, hosts: Collection[str]) -> None:
        await asyncio.gather(*[child.poll(own) for child in self._children if (own := set(hosts) & set(child.hosts))])

    def hurry(self) -> None:
        for child in self._children:
            child.hurry()

    def close(self) -> None:
        for child in self._children:
            child.close()


def host_of(name: str) -> str:
    """The host of a name under which records are reported: a host, or `HOST/LEDGER`."""
    return name.partition("/")[0]


class _GatherAll(ExecutorObserver):
    """Passes on the reports of several executors. Attempts are started once all executors have gathered their hosts.

    When one executor has failed, the run cannot continue: its hosts may still have attempts, which no other executor
    can reach. The run can be resumed.
    """

    def __init__(self, observer: ExecutorObserver, executors: int) -> None:
        self._observer = observer
        self._waiting = executors
        self._notices: list[str] = []

    def scheduling_may_begin(self, notices: Sequence[str]) -> None:
        self._waiting -= 1
        self._notices += notices
        if self._waiting == 0:
            self._observer.scheduling_may_begin(self._notices)

    def notice(self, text: str) -> None:
        self._observer.notice(text)

    def node_described(self, node: str, layout: NodeLayout) -> None:
        self._observer.node_described(node, layout)

    def host_ready(self, host: str, nodes: list[str], live: list[Running]) -> None:
        self._observer.host_ready(host, nodes, live)

    def records_received(self, host: str, records: Sequence[NumberedRecord]) -> None:
        self._observer.records_received(host, records)

    def host_swept(self, host: str, nodes: list[str], attempt_ids: list[str]) -> None:
        self._observer.host_swept(host, nodes, attempt_ids)

    def host_away(self, host: str, nodes: list[str], reason: str = "") -> None:
        self._observer.host_away(host, nodes, reason)

    def message_received(self, attempt_id: str, text: str) -> None:
        self._observer.message_received(attempt_id, text)

    def launch_of(self, ended: Ended) -> Launch | None:
        return self._observer.launch_of(ended)

    def has_attempts(self, node: str) -> bool:
        return self._observer.has_attempts(node)

    def nodes_lost(self, nodes: list[str], message: str) -> None:
        self._observer.nodes_lost(nodes, message)

    def executor_failed(self, reason: str) -> None:
        self._observer.executor_failed(reason)
