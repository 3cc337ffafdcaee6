"""Agents without processes, for tests: they record messages of the manager, and the test sends messages for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.executors.agents import AgentExecutor, Endpoint
from qcg.pilotjob.executors.base import ExecutorObserver, NodeLayout, NumberedRecord
from qcg.pilotjob.executors.supervision import AgentSupervisor
from qcg.pilotjob.host.records import Running
from qcg.pilotjob.wire.keys import Keys


class NotingObserver(ExecutorObserver):
    """Records the calls of an executor, a tuple each."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def scheduling_may_begin(self, notices: Sequence[str]) -> None:
        self.seen.append(("gathered", *notices))

    def notice(self, text: str) -> None:
        self.seen.append(("notice", text))

    def node_described(self, node: str, layout: NodeLayout) -> None:
        self.seen.append(("described", node, layout))

    def host_ready(self, host: str, nodes: list[str], live: list[Running]) -> None:
        self.seen.append(("ready", host, nodes, [running.id for running in live]))

    def records_received(self, host: str, records: Sequence[NumberedRecord]) -> None:
        self.seen.append(("records", host, [(record.number, record.body.id) for record in records]))

    def host_swept(self, host: str, nodes: list[str], attempt_ids: list[str]) -> None:
        self.seen.append(("swept", host, nodes, attempt_ids))

    def host_away(self, host: str, nodes: list[str], reason: str = "") -> None:
        self.seen.append(("away", host, nodes, reason) if reason else ("away", host, nodes))

    def nodes_lost(self, nodes: list[str], message: str) -> None:
        self.seen.append(("lost", nodes))

    def executor_failed(self, reason: str) -> None:
        self.seen.append(("failed", reason))

    def noted(self, kind: str) -> list[tuple[Any, ...]]:
        return [seen[1:] for seen in self.seen if seen[0] == kind]


class FakeSupervisor(AgentSupervisor):
    """Starts nothing: agents connect when the test requests it."""

    def __init__(self, executor: AgentExecutor, observer: ExecutorObserver) -> None:
        self._observer = observer
        self._present: set[str] = set()
        self._all_left = asyncio.Event()

    def start(self) -> None:
        self._observer.scheduling_may_begin([])

    def hello(self, hello: protocol.Hello) -> None:
        self._present.add(hello.agent)

    def message_received(self, name: str) -> None:
        pass

    def ready(self, name: str) -> None:
        pass

    def bye(self, name: str) -> None:
        self._present.discard(name)
        if not self._present:
            self._all_left.set()

    async def end(self, grace: float) -> None:
        await self._all_left.wait()

    def close(self) -> None:
        pass


class FakePort:
    """The socket for agents, in memory."""

    address = "tcp://127.0.0.1:1"

    def __init__(self) -> None:
        self.sent: list[tuple[str, protocol.FromManager]] = []
        """By peer, the messages to agents."""
        self.receive: Callable[[list[Any]], None]

    def router(self, domain: str, keys: Keys, address: str, on_messages: Callable[[list[Any]], None]) -> FakePort:
        self.receive = on_messages
        return self

    def send(self, frames: list[bytes]) -> None:
        peer, body = frames
        self.sent.append((peer.decode(), protocol.decode_from_manager(body)))

    def close(self) -> None:
        pass

    def say(self, peer: str, message: protocol.FromAgent) -> None:
        """Send a message for an agent."""
        self.receive([[peer.encode(), protocol.encode(message)]])

    def hello(self, name: str, peer: str = "", host: str = "host", pid: int = 7, **more: Any) -> None:
        more = {"version": "1.0", "protocol": protocol.PROTOCOL, **more}
        self.say(peer or name, protocol.Hello(name, host, pid, [0], **more))


def endpoint(port: FakePort) -> Endpoint:
    return Endpoint(port, Keys("", "", "", ""), "tcp://127.0.0.1:*")  # type: ignore[arg-type]


def agent_executor(
    observer: ExecutorObserver,
    agents: dict[str, list[str]],
    port: FakePort | None = None,
    supervise: Callable[[AgentExecutor], AgentSupervisor] | None = None,
) -> AgentExecutor:
    """An executor that listens at a port in memory."""
    executor = AgentExecutor(
        observer,
        agents,
        {},
        endpoint(port or FakePort()),
        supervise or (lambda executor: FakeSupervisor(executor, observer)),
    )
    executor.open()
    return executor
