"""The executor that reaches hosts through agents, which connect to this manager over ZeroMQ."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.executors.base import Executor, ExecutorObserver, NumberedRecord
from qcg.pilotjob.executors.heartbeats import HeartbeatServer
from qcg.pilotjob.executors.supervision import AgentSupervisor
from qcg.pilotjob.host.records import Ended, EndReason, Launch, Record, Started
from qcg.pilotjob.wire.contact import AgentsContact
from qcg.pilotjob.wire.hub import Frames, Hub, Port
from qcg.pilotjob.wire.keys import Keys

log = logging.getLogger(__name__)

DOMAIN = "agents"


class Endpoint(NamedTuple):
    """Where agents connect to this manager."""

    hub: Hub
    keys: Keys
    address: str


class AgentHandle:
    """The state of one agent in the manager: its connection, its records, and messages that wait for the next flush."""

    def __init__(self, name: str, nodes: list[str], acked: int) -> None:
        self.name = name
        self.nodes = nodes
        self.acked = acked
        """Its last record that is in the journal."""
        self.seen = acked
        """Its last record that was handled."""
        self.peer: bytes | None = None
        """Its connection, after its Hello."""
        self.ready = False
        """It has reported its attempts, so that later messages cannot concern attempts missing from that report."""
        self.given_up = False
        """Its attempts were declared lost, and it has not reported since."""
        self.launches: list[Launch] = []
        self.kills: dict[tuple[str, str], list[str]] = {}
        """By reason and message."""
        self.retracts: list[str] = []
        self.sweeps: list[str] = []
        """Attempts started from other nodes, to be ended on the nodes of this agent."""


class AgentExecutor(Executor):
    def __init__(
        self,
        observer: ExecutorObserver,
        agents: Mapping[str, list[str]],
        acked: Mapping[str, int],
        endpoint: Endpoint | None,
        supervise: Callable[[AgentExecutor], AgentSupervisor],
        *,
        instance: str = "",
        fence: float = 0.0,
    ) -> None:
        """`agents`: the nodes of each agent. `acked`: the last record of each agent that is in the journal. `endpoint`:
        None only where no socket is wanted. `instance`: the first part of the markers of all jobs. `fence`: seconds
        after which an agent that is cut off ends its attempts; 0: never."""
        self._observer = observer
        self._endpoint = endpoint
        self._instance = instance
        self._fence = fence
        self.agents = {name: AgentHandle(name, nodes, acked.get(name, 0)) for name, nodes in agents.items()}
        self._by_node = {node: self.agents[name] for name, nodes in agents.items() for node in nodes}
        self._by_peer: dict[bytes, AgentHandle] = {}
        self._port: Port | None = None
        self.heartbeats: HeartbeatServer | None = None
        """The heartbeats of agents that may be cut off."""
        self._exit: protocol.Exit | None = None
        """Set during the shutdown."""
        self._in_hurry = False
        """The shutdown has no grace period."""
        self._supervisor = supervise(self)

    @property
    def hosts(self) -> Mapping[str, Sequence[str]]:
        return {agent.name: agent.nodes for agent in self.agents.values()}

    def open(self) -> AgentsContact:
        assert self._endpoint is not None
        hub, keys, address = self._endpoint
        self._port = hub.router(DOMAIN, keys, address, self._messages)
        if self._fence:
            self.heartbeats = HeartbeatServer(keys, address, self.agents)
        heartbeat_address = self.heartbeats.address if self.heartbeats else ""
        return AgentsContact(
            self._port.address, keys.server_public, keys.client_public, keys.client_secret, heartbeat_address
        )

    def start(self) -> None:
        self._supervisor.start()

    def launch(self, node: str, launch: Launch) -> None:
        self._by_node[node].launches.append(launch)

    def kill(self, node: str, attempt_id: str, reason: str = EndReason.CANCEL, message: str = "") -> None:
        self._by_node[node].kills.setdefault((reason, message), []).append(attempt_id)

    def same_host(self, node: str, other: str) -> bool:
        return self._by_node[node] is self._by_node[other]

    def signal(self, attempt_ids: Mapping[str, list[str]], number: int) -> None:
        for node, ids in attempt_ids.items():
            self._send(self._by_node[node], protocol.Signal(ids, number))

    def retract(self, node: str, attempt_ids: list[str]) -> None:
        self._by_node[node].retracts += attempt_ids

    def sweep(self, node: str, attempt_id: str) -> None:
        self._by_node[node].sweeps.append(attempt_id)

    def flush(self) -> None:
        for agent in self.agents.values():
            if agent.launches:
                if agent.ready:
                    self._send(agent, protocol.Start(agent.launches))
                agent.launches = []
            if agent.retracts:
                # Before the kills: a launch that waits in a lane would start when the attempt before it is killed.
                if agent.ready:
                    self._send(agent, protocol.Retract(agent.retracts))
                agent.retracts = []
            if agent.kills:
                for (reason, message), ids in agent.kills.items() if agent.ready else ():
                    self._send(agent, protocol.Kill(ids, reason, message))
                agent.kills = {}
            if agent.sweeps:
                if agent.ready:
                    self._send(agent, protocol.Sweep(agent.sweeps, self._instance))
                agent.sweeps = []

    def acknowledge(self, numbers: Mapping[str, int]) -> None:
        for name, number in numbers.items():
            agent = self.agents[name]
            if number > agent.acked:
                agent.acked = number
                self._send(agent, protocol.Ack(number))

    async def shut_down(self, grace: float, reason: str) -> None:
        grace = 0.0 if self._in_hurry else grace
        self._tell_to_exit(protocol.Exit(grace, reason))
        await self._supervisor.end(grace)

    def hurry(self) -> None:
        self._in_hurry = True
        if self._exit is not None:
            self._tell_to_exit(protocol.Exit(0.0, self._exit.reason))

    def close(self) -> None:
        if self.heartbeats is not None:
            self.heartbeats.close()
            self.heartbeats = None
        if self._port is not None:
            self._port.close()
            self._port = None
        self._supervisor.close()

    def _tell_to_exit(self, message: protocol.Exit) -> None:
        """Agents that connect later get it after their Hello."""
        self._exit = message
        for agent in self.agents.values():
            self._send(agent, message)

    # -- for the supervisor ---------------------------------------------------------------------------------------

    def gone(self, name: str) -> None:
        """An agent, or its connection, has ended."""
        agent = self.agents[name]
        if agent.peer is not None:
            self._by_peer.pop(agent.peer, None)
        agent.peer = None
        if agent.ready and self._exit is None:
            agent.ready = False
            self._observer.host_away(name, agent.nodes)

    def give_up(self, names: Sequence[str]) -> None:
        """Declare the attempts of these agents lost. An agent that connects again ends them before anything else."""
        for name in names:
            self.agents[name].given_up = True

    def ledger_read(self, name: str, records: Sequence[tuple[int, Started | Ended]]) -> None:
        """Handle the records in the ledger of an agent that cannot send them any more."""
        self._records(self.agents[name], [Record(number, body) for number, body in records])

    # -- messages -------------------------------------------------------------------------------------------------

    def _send(self, agent: AgentHandle, message: protocol.FromManager) -> None:
        if agent.peer is not None and self._port is not None:
            self._port.send([agent.peer, protocol.encode(message)])

    def _messages(self, messages: list[Frames]) -> None:
        for peer, *bodies in messages:
            try:
                message = protocol.decode_from_agent(b"".join(bodies))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                log.error("a message from an agent could not be read and was dropped: %s", error)
                continue
            self._message(peer, message)

    def _message(self, peer: bytes, message: protocol.FromAgent) -> None:
        agent = self._by_peer.get(peer)
        if isinstance(message, protocol.Hello):
            self._hello(peer, message)
        elif agent is None:
            assert self._port is not None
            self._port.send([peer, protocol.encode(protocol.Identify())])
        else:
            self._supervisor.message_received(agent.name)
            self._agent_message(agent, message)

    def _agent_message(self, agent: AgentHandle, message: protocol.FromAgent) -> None:
        if isinstance(message, protocol.Beat):
            self._send(agent, message)  # at once: the agent measures from this time how long it may be cut off
        elif isinstance(message, protocol.News):
            self._records(agent, message.records)
        elif isinstance(message, protocol.Report):
            self._records(agent, message.records)
            agent.ready = True
            agent.given_up = False
            self._observer.host_ready(agent.name, agent.nodes, message.live)
            self._supervisor.ready(agent.name)
        elif isinstance(message, protocol.Leaving):
            others = {self._by_node[node].name: self._by_node[node] for node in message.nodes if node in self._by_node}
            for other in others.values():
                if other is not agent:
                    self._send(other, protocol.Sweep([message.id], self._instance, message.grace))
        elif isinstance(message, protocol.Swept):
            self._observer.host_swept(agent.name, agent.nodes, message.ids)
        elif isinstance(message, protocol.Bye):
            self._supervisor.bye(agent.name)

    def _hello(self, peer: bytes, hello: protocol.Hello) -> None:
        agent = self.agents.get(hello.agent)
        if agent is None:
            log.error(
                "agent %s on %s connected, but is not an agent of this run; it is ignored", hello.agent, hello.host
            )
            return
        if hello.protocol != protocol.PROTOCOL:
            self._observer.executor_failed(
                f"agent {hello.agent} (pid {hello.pid} on {hello.host}) belongs to another version of QCG-PilotJob"
                f" ({hello.version}) and would not understand this one; resume the run with that version, or end the"
                f" agent and its jobs with `kill {hello.pid}` first"
            )
            return
        self.gone(agent.name)  # its earlier connection; it gets nothing until it has reported
        agent.peer = peer
        self._by_peer[peer] = agent
        log.info("agent %s connected from %s (pid %d)", hello.agent, hello.host, hello.pid)
        self._supervisor.hello(hello)
        self._send(agent, protocol.Welcome(agent.acked, agent.seen, self._instance, self._fence, agent.given_up))
        if self._exit is not None:
            self._send(agent, self._exit)

    def _records(self, agent: AgentHandle, records: Sequence[NumberedRecord]) -> None:
        fresh = [record for record in records if record.number > agent.seen]
        if fresh:
            agent.seen = fresh[-1].number
            self._observer.records_received(agent.name, fresh)
