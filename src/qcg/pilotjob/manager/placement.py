"""The placement of a run: its nodes, the address at which their agents reach the manager, and their executor."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from qcg.pilotjob.cluster.agent_start import AgentCommand, StartMethod
from qcg.pilotjob.cluster.base import Allocation, BatchSystem, NodeRange
from qcg.pilotjob.cluster.errors import ClusterError, RangeError
from qcg.pilotjob.cluster.find import find_nodes
from qcg.pilotjob.cluster.registry import batch_system, sources_of_files
from qcg.pilotjob.common.options import Options
from qcg.pilotjob.common.wording import list_names
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.executors.agents import AgentExecutor, Endpoint
from qcg.pilotjob.executors.base import Executor, ExecutorFactory, ExecutorObserver
from qcg.pilotjob.executors.contact_keeper import ContactKeeper
from qcg.pilotjob.executors.liveness import LivenessTimes
from qcg.pilotjob.executors.local_agent import NAME, LocalAgent
from qcg.pilotjob.executors.prestart import PrestartedAgent
from qcg.pilotjob.executors.supervision import AgentSupervisor
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import LONGEST_NODE_TIMEOUT
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.manager.named_counters import with_named_counters
from qcg.pilotjob.wire.routing import LOOPBACK, address_towards


class Placement(Struct, frozen=True):
    """The nodes of a run: this host, virtual nodes, or an allocation."""

    specs: list[NodeSpec]
    bindings: dict[str, Mapping[int, int]]
    """Core numbers of the kernel by core of the run, for each node where they are known before its agent connects."""
    allocation: Allocation | None = None

    @property
    def agents(self) -> dict[str, list[str]]:
        """The nodes of each agent, by the name of the agent."""
        names = [spec.name for spec in self.specs]
        return {NAME: names} if self.allocation is None else {name: [name] for name in names}

    @property
    def fallback_node(self) -> str:
        """A node whose agent has the attempts of all nodes that this run ever had; empty where there is none."""
        return self.specs[0].name if self.allocation is None else ""

    @property
    def address(self) -> str:
        """The address of this machine for agents."""
        if self.allocation is None:
            return LOOPBACK
        found = address_towards(self.allocation.addresses.values())
        if found is None and len(self.allocation.addresses) > 1:
            addresses = list_names(list(self.allocation.addresses.values()))
            raise ClusterError(
                f"the {'nodes of the allocation' if self.job_id else 'hosts'} cannot be reached from here: their names"
                f" and addresses ({addresses}) lead nowhere, or back to this machine; see what"
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


def find_placement(options: Options) -> Placement:
    part = NodeRange(options.first_node, options.end_node)
    try:
        found = find_nodes(options.resources, options.nodes, os.environ, part)
    except RangeError as error:
        raise ClusterError(f"--limit-nodes-range-begin and --limit-nodes-range-end: {error}") from None
    specs = with_named_counters(found.specs, options.named)
    if isinstance(found, Allocation):
        return Placement(specs, {}, found)
    bound = found.real and not options.no_bind
    return Placement(specs, {spec.name: {core: core for core in spec.cores} for spec in specs} if bound else {})


def hosts_of_file(options: Options) -> list[str]:
    """The hosts of the run, where a file lists them."""
    if options.resources.partition(":")[0] not in sources_of_files():
        return []
    return [spec.name for spec in find_nodes(options.resources, options.nodes, os.environ).specs]


def without_system_core(placement: Placement) -> Placement:
    """The placement without the first core of the first node, which is reserved for the manager."""
    first = placement.specs[0]
    first = msgspec.structs.replace(first, cores=first.cores[1:])
    return msgspec.structs.replace(placement, specs=[first, *placement.specs[1:]])


def agent_executor(
    placement: Placement,
    options: Options,
    run_dir: Path,
    site: Site,
    journal: Journal,
    endpoint: Endpoint,
    contact: ContactKeeper,
    on_local_agent: Callable[[int], None] = lambda pid: None,
    prestarted: PrestartedAgent | None = None,
) -> ExecutorFactory:
    """The executor for the nodes of a run. `on_local_agent`: called with the pid of the agent of this host when it
    connects."""
    system, agents = placement.system, placement.agents
    if placement.allocation is None or system is None:

        def local(observer: ExecutorObserver) -> Executor:
            def supervise(executor: AgentExecutor) -> AgentSupervisor:
                return LocalAgent(
                    executor,
                    observer,
                    run_dir,
                    options.linger,
                    pretend=options.pretend,
                    prestarted=prestarted,
                    on_connected=on_local_agent,
                )

            return AgentExecutor(
                observer, placement.agents, journal.acked(), endpoint, supervise, instance=site.instance
            )

        return local
    # Imported here: most runs on one machine do not need it.
    from qcg.pilotjob.executors.allocation_agents import AllocationAgents
    from qcg.pilotjob.manager.allocation_layouts import AllocationLayouts

    times = LivenessTimes(options.node_timeout, options.nl_init_timeout)
    allocation = placement.allocation
    agent = AgentCommand(run_dir, options.linger, allocation.end, allocation.ref, allocation.logins)
    start = system.agent_start(StartMethod.of_option(options.nl_start_method), agent, os.environ)
    earlier = LivenessTimes(journal.metadata(LONGEST_NODE_TIMEOUT) or options.node_timeout, options.nl_init_timeout)
    layouts = AllocationLayouts(placement.allocation, system.label, bind=not options.no_bind)

    def in_allocation(observer: ExecutorObserver) -> Executor:
        def supervise(executor: AgentExecutor) -> AgentSupervisor:
            threshold = options.nl_ready_threshold
            return AllocationAgents(executor, observer, start, run_dir, contact, layouts, times, threshold, earlier)

        return AgentExecutor(
            observer,
            agents,
            journal.acked(),
            endpoint,
            supervise,
            instance=site.instance,
            fence=times.fence,
        )

    return in_allocation
