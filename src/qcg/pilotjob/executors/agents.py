"""Carries launches and kills to agents, and what they tell back to the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.executors.heartbeats import Pulses
from qcg.pilotjob.host.records import Ended, Launch, Running, Started
from qcg.pilotjob.wire.contact import AgentsContact
from qcg.pilotjob.wire.hub import Frames, Hub, Port
from qcg.pilotjob.wire.keys import Keys

log = logging.getLogger(__name__)

DOMAIN = "agents"


class Listener:
    """What an executor tells. The engine is one."""

    def agent_told(self, agent: str, records: Sequence[protocol.Record]) -> None:
        """Runs have begun or ended; each record once, in order."""
        raise NotImplementedError

    def agent_ready(self, agent: str, nodes: list[str], live: list[Running]) -> None:
        """An agent has connected, and this is all it has under way."""
        raise NotImplementedError

    def agent_swept(self, agent: str, nodes: list[str], run_ids: list[str]) -> None:
        """Nothing is left there of runs that others have started."""
        raise NotImplementedError

    def agent_away(self, agent: str, nodes: list[str]) -> None:
        """An agent has gone, perhaps for good."""
        raise NotImplementedError


class Agent:
    """One agent as the manager sees it."""

    def __init__(self, name: str, nodes: list[str], acked: int) -> None:
        self.name = name
        self.nodes = nodes
        self.acked = acked
        """Its last record that the journal has."""
        self.seen = acked
        """Its last record that was handled."""
        self.peer: bytes | None = None
        """Its connection, once it has said Hello."""
        self.ready = False
        """It has reported, so that whatever it is sent from now on is not missing from its report."""
        self.given_up = False
        """Its jobs were taken for lost, and it has not reported since."""
        self.launches: list[Launch] = []
        self.kills: dict[tuple[str, str], list[str]] = {}
        """By reason and message."""
        self.recalls: list[str] = []
        self.sweeps: list[str] = []
        """Runs to end here that were started from other nodes."""


class AgentExecutor:
    def __init__(
        self, listener: Listener, agents: dict[str, list[str]], acked: dict[str, int], instance: str = ""
    ) -> None:
        """`agents`: the nodes that each agent looks after. `acked`: what the journal has of them. `instance`: what the
        markers of all jobs begin with."""
        self._listener = listener
        self._instance = instance
        self.fence = 0.0
        """Seconds after which an agent that is cut off ends its jobs; 0: never."""
        self.agents = {name: Agent(name, nodes, acked.get(name, 0)) for name, nodes in agents.items()}
        self._by_node = {node: self.agents[name] for name, nodes in agents.items() for node in nodes}
        self._by_peer: dict[bytes, Agent] = {}
        self._port: Port | None = None
        self.pulses: Pulses | None = None
        """Where agents that may be cut off are heard and answered, too."""
        self.touched = 0.0
        """When the contact file was kept fresh last, in monotonic seconds."""
        self.on_hello: Callable[[protocol.Hello], None] = lambda hello: None
        self.on_incompatible: Callable[[str], None] = lambda reason: None
        """Called with a clause when an agent of another version connects."""
        self.on_heard: Callable[[str], None] = lambda name: None
        self.on_ready: Callable[[str], None] = lambda name: None
        self.on_bye: Callable[[str], None] = lambda name: None
        self.exit_reason = "cancel"
        """What the records of those will say that agents end with themselves."""
        self._exit: protocol.Exit | None = None
        """Set once agents are to end."""

    def open(self, hub: Hub, keys: Keys, address: str) -> AgentsContact:
        """Listen; what agents need to connect."""
        self._port = hub.router(DOMAIN, keys, address, self._messages)
        if self.fence:
            self.pulses = Pulses(keys, address, self.agents)
        pulse = self.pulses.address if self.pulses else ""
        return AgentsContact(self._port.address, keys.server_public, keys.client_public, keys.client_secret, pulse)

    def launch(self, node: str, launch: Launch) -> None:
        self._by_node[node].launches.append(launch)

    def kill(self, node: str, attempt_id: str, reason: str = "cancel", message: str = "") -> None:
        self._by_node[node].kills.setdefault((reason, message), []).append(attempt_id)

    def same_agent(self, node: str, other: str) -> bool:
        return self._by_node[node] is self._by_node[other]

    def signal(self, run_ids: dict[str, list[str]], number: int) -> None:
        """Give a signal to runs, by the node that has started them."""
        for node, ids in run_ids.items():
            self._send(self._by_node[node], protocol.Signal(ids, number))

    def retract(self, node: str, run_ids: list[str]) -> None:
        """Take back those of these runs that stand behind others."""
        self._by_node[node].recalls += run_ids

    def sweep(self, node: str, attempt_id: str) -> None:
        """End what a run that was started from another node has on this one."""
        self._by_node[node].sweeps.append(attempt_id)

    def flush(self) -> None:
        """Send what has gathered; what is for an agent that is away is dropped, and its report puts the books right."""
        for agent in self.agents.values():
            if agent.launches:
                if agent.ready:
                    self._send(agent, protocol.Start(agent.launches))
                agent.launches = []
            if agent.recalls:
                # Before those are ended that they stand behind.
                if agent.ready:
                    self._send(agent, protocol.Retract(agent.recalls))
                agent.recalls = []
            if agent.kills:
                for (reason, message), ids in agent.kills.items() if agent.ready else ():
                    self._send(agent, protocol.Kill(ids, reason, message))
                agent.kills = {}
            if agent.sweeps:
                if agent.ready:
                    self._send(agent, protocol.Sweep(agent.sweeps, self._instance))
                agent.sweeps = []

    def acknowledge(self, seen: dict[str, int]) -> None:
        """The journal has everything up to these records."""
        for name, number in seen.items():
            agent = self.agents[name]
            if number > agent.acked:
                agent.acked = number
                self._send(agent, protocol.Ack(number))

    def tell_to_exit(self, grace: float) -> None:
        """Those that have not connected yet are told when they do."""
        self._exit = protocol.Exit(grace, self.exit_reason)
        for agent in self.agents.values():
            self._send(agent, self._exit)

    def gone(self, name: str) -> None:
        """An agent, or its connection, has ended."""
        agent = self.agents[name]
        if agent.peer is not None:
            self._by_peer.pop(agent.peer, None)
        agent.peer = None
        if agent.ready and self._exit is None:
            agent.ready = False
            self._listener.agent_away(name, agent.nodes)

    def give_up(self, names: Sequence[str]) -> None:
        """Jobs of these agents are taken for lost: should one still be there, it ends them before anything else."""
        for name in names:
            self.agents[name].given_up = True

    def told_in_writing(self, name: str, records: Sequence[tuple[int, Started | Ended]]) -> None:
        """What an agent that is not heard any more has written down."""
        self._records(self.agents[name], [protocol.record(number, body) for number, body in records])

    def _send(self, agent: Agent, message: protocol.FromManager) -> None:
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
            self.on_heard(agent.name)
            self._words(agent, message)

    def _words(self, agent: Agent, message: protocol.FromAgent) -> None:
        if isinstance(message, protocol.Beat):
            self._send(agent, message)  # at once: its time tells the agent since when it is known to be alive
        elif isinstance(message, protocol.News):
            self._records(agent, message.records)
        elif isinstance(message, protocol.Report):
            self._records(agent, message.records)
            agent.ready = True
            agent.given_up = False
            self._listener.agent_ready(agent.name, agent.nodes, message.live)
            self.on_ready(agent.name)
        elif isinstance(message, protocol.Leaving):
            others = {self._by_node[node].name: self._by_node[node] for node in message.nodes if node in self._by_node}
            for other in others.values():
                if other is not agent:
                    self._send(other, protocol.Sweep([message.id], self._instance, message.grace))
        elif isinstance(message, protocol.Swept):
            self._listener.agent_swept(agent.name, agent.nodes, message.ids)
        elif isinstance(message, protocol.Bye):
            self.on_bye(agent.name)

    def _hello(self, peer: bytes, hello: protocol.Hello) -> None:
        agent = self.agents.get(hello.agent)
        if agent is None:
            log.error("an agent that nobody asked for says hello: %s on %s; it is left alone", hello.agent, hello.host)
            return
        if hello.protocol != protocol.PROTOCOL:
            self.on_incompatible(
                f"agent {hello.agent} (pid {hello.pid} on {hello.host}) belongs to another version of QCG-PilotJob"
                f" ({hello.version}) and would not understand this one; resume the run with that version, or end the"
                f" agent and its jobs with `kill {hello.pid}` first"
            )
            return
        self.gone(agent.name)  # its earlier connection; until it has reported, it gets nothing
        agent.peer = peer
        self._by_peer[peer] = agent
        log.info("agent %s connected from %s (pid %d)", hello.agent, hello.host, hello.pid)
        self.on_hello(hello)
        self._send(agent, protocol.Welcome(agent.acked, agent.seen, self._instance, self.fence, agent.given_up))
        if self._exit is not None:
            self._send(agent, self._exit)

    def _records(self, agent: Agent, records: list[protocol.Record]) -> None:
        fresh = [record for record in records if record.number > agent.seen]
        if fresh:
            agent.seen = fresh[-1].number
            self._listener.agent_told(agent.name, fresh)
