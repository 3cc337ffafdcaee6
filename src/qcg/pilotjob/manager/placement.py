"""Where a run takes place: its nodes, the address at which they reach the manager, and who looks after their agents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.cluster.agent_start import AgentCommand
from qcg.pilotjob.cluster.base import Allocation, BatchSystem, NodeRange
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.find import find_nodes
from qcg.pilotjob.cluster.registry import batch_system, sources_of_files
from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.events import NodesLost
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.executors.allocation_agents import NodeAgents, listed
from qcg.pilotjob.executors.liveness import Times
from qcg.pilotjob.executors.local_agent import NAME, LocalAgent
from qcg.pilotjob.executors.prestart import SpareAgent
from qcg.pilotjob.executors.supervision import Supervision
from qcg.pilotjob.journal.metadata import LONGEST_NODE_TIMEOUT
from qcg.pilotjob.launch.binding import Layout, binding, binding_by_count
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.wire.routing import LOOPBACK, address_towards


class Place(Struct, frozen=True):
    specs: list[NodeSpec]
    bindings: dict[str, Mapping[int, int]]
    """As far as they are known before agents tell."""
    allocation: Allocation | None = None

    @property
    def agents(self) -> dict[str, list[str]]:
        """The names of the agents, and the nodes that each of them looks after."""
        names = [spec.name for spec in self.specs]
        return {NAME: names} if self.allocation is None else {name: [name] for name in names}

    @property
    def fallback_node(self) -> str:
        """The node whose agent has looked after all nodes that this run ever had, where there is one."""
        return self.specs[0].name if self.allocation is None else ""

    @property
    def address(self) -> str:
        """Of this machine, as nodes see it."""
        if self.allocation is None:
            return LOOPBACK
        found = address_towards(self.allocation.addresses.values())
        if found is None and len(self.allocation.addresses) > 1:
            raise ClusterError(
                "the nodes of the allocation cannot be reached from here: their names and addresses"
                f" ({listed(list(self.allocation.addresses.values()))}) lead nowhere, or back to this machine; see what"
                f" /etc/hosts says about them{batch_system(self.allocation.ref.system).address_hint}"
            )
        return found or LOOPBACK

    @property
    def cluster_name(self) -> str:
        return "local" if self.allocation is None else self.allocation.ref.cluster or self.allocation.ref.system

    @property
    def job_id(self) -> str:
        """The id of the allocation; empty without one."""
        return "" if self.allocation is None else self.allocation.ref.id

    @property
    def system(self) -> BatchSystem | None:
        """The batch system whose nodes the run uses."""
        return None if self.allocation is None else batch_system(self.allocation.ref.system)


def find_place(options: Options) -> Place:
    part = NodeRange(options.slurm_limit_nodes_range_begin, options.slurm_limit_nodes_range_end)
    found = find_nodes(options.resources, options.nodes, os.environ, part)
    if isinstance(found, Allocation):
        return Place(found.specs, {}, found)
    bound = found.real and not options.no_bind
    return Place(found.specs, {spec.name: {core: core for core in spec.cores} for spec in found.specs} if bound else {})


def hosts_of_file(options: Options) -> list[str]:
    """The hosts of the run, where a file lists them."""
    if options.resources.partition(":")[0] not in sources_of_files():
        return []
    return [spec.name for spec in find_nodes(options.resources, options.nodes, os.environ).specs]


def without_system_core(place: Place) -> Place:
    """The first core of the first node is the manager's own."""
    first = place.specs[0]
    first = msgspec.structs.replace(first, cores=first.cores[1:])
    return msgspec.structs.replace(place, specs=[first, *place.specs[1:]])


def look_after_agents(
    place: Place,
    engine: Engine,
    options: Options,
    run_dir: Path,
    on_local_agent: Callable[[int], None] = lambda pid: None,
    spare: SpareAgent | None = None,
) -> Supervision:
    """`on_local_agent`: called with the pid of the agent of this host when it connects."""
    system = place.system
    if place.allocation is None or system is None:
        return LocalAgent(
            engine.executor,
            run_dir,
            options.linger,
            pretend=options.pretend,
            spare=spare,
            on_connected=on_local_agent,
        )
    times = Times(options.node_timeout, options.nl_init_timeout)
    agent = AgentCommand(run_dir, options.linger, place.allocation.end, place.allocation.ref)
    start = system.agent_start(options.nl_start_method, agent, os.environ)
    earlier = Times(engine.journal.metadata(LONGEST_NODE_TIMEOUT) or options.node_timeout, options.nl_init_timeout)
    agents = NodeAgents(engine.executor, start, run_dir, times, options.nl_ready_threshold, earlier)
    engine.gathering = True
    engine.executor.fence = times.fence
    unbound = _bind_as_agents_tell(place.allocation, engine, bind=not options.no_bind)

    def gathered(missing: list[str]) -> None:
        if missing:
            engine.notice(f"no agent has connected from {listed(missing)} so far; jobs are started on the other nodes")
        if unbound:
            names = listed(sorted(unbound))
            engine.notice(
                f"{names}: the CPUs there are not those that {system.label} counts; jobs are not bound to their cores"
                " there"
            )
        engine.begin()

    def lost(nodes: list[str], message: str) -> None:
        engine.notice(f"{listed(nodes)}: {message}")
        engine.dispatch(NodesLost(nodes, message))

    agents.on_gathered = gathered
    agents.on_lost = lost
    return agents


def _bind_as_agents_tell(allocation: Allocation, engine: Engine, *, bind: bool) -> list[str]:
    """The nodes whose cores cannot be bound to, as they are found."""
    unbound: list[str] = []
    gpus = {spec.name: spec.gpus for spec in allocation.specs}
    cores = {spec.name: spec.cores for spec in allocation.specs}

    def hello(said: protocol.Hello) -> None:
        if len(said.gpus) == len(gpus[said.agent]):
            engine.site.visible_gpus[said.agent] = dict(zip(gpus[said.agent], said.gpus, strict=True))
        if not bind:
            return
        if said.agent in allocation.layouts:
            layout = Layout(*allocation.layouts[said.agent])
            found = binding(allocation.cpus[said.agent], said.cores, said.machine, layout)
        else:
            found = binding_by_count(cores[said.agent], said.cores, said.machine)
        if found is not None:
            engine.site.bindings[said.agent] = found
        elif said.agent not in unbound:
            unbound.append(said.agent)

    engine.executor.on_hello = hello
    return unbound
