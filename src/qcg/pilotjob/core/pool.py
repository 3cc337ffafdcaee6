"""The resource pool: all nodes, in groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from qcg.pilotjob.core.feasibility import why_never
from qcg.pilotjob.core.node_group import AnyHost, NodeGroup, SlotGroup, Target
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.core.resources import Node, NodeSpec
from qcg.pilotjob.core.run_counters import RunCounters
from qcg.pilotjob.description.model import ANY_HOST, ResourceRequest

EMPTY: Mapping[str, int] = MappingProxyType({})


class Pool:
    """All nodes: those of the run itself, and remote hosts. An attempt never uses nodes of two groups."""

    def __init__(self, specs: Sequence[NodeSpec], counters: Mapping[str, int] = EMPTY) -> None:
        """`counters`: the named counters of the run."""
        by_group: dict[str, list[NodeSpec]] = {"": []}
        for spec in specs:
            by_group.setdefault(spec.group, []).append(spec)
        self.specs = tuple(specs)
        self.counters = RunCounters(counters)
        self.names_on_nodes = frozenset([name for spec in specs for name, _ in spec.counters])
        """Names of the counters that nodes have."""
        self.groups = tuple(
            [
                SlotGroup(name, members) if any(spec.slots for spec in members) else NodeGroup(name, members)
                for name, members in by_group.items()
            ]
        )
        self.local, self.hosts = self.groups[0], self.groups[1:]
        self.nodes = [node for group in self.groups for node in group.nodes]
        self._found = {node.spec.name: (node, group) for group in self.groups for node in group.nodes}
        self.version = 0
        """Number of changes other than grants and their releases."""
        self.grants_released = 0
        """Number of grants released."""
        self._targets: dict[str, Target] = {group.name: group for group in self.groups}
        self._targets[ANY_HOST] = AnyHost(self.hosts)

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def node(self, name: str) -> Node:
        return self._found[name][0]

    def group_of(self, node: str) -> NodeGroup:
        return self._found[node][1]

    def target(self, request: ResourceRequest) -> Target:
        """Where the request can be granted; a group without nodes if its host is not known."""
        target = self._targets.get(request.host)
        return NodeGroup(request.host, ()) if target is None else target

    @property
    def free_cores(self) -> int:
        """The number of free cores on all available nodes."""
        return sum([group.free_cores for group in self.groups])

    @property
    def total_cores(self) -> int:
        """The number of cores of the run itself, without remote hosts."""
        return self.local.total_cores

    @property
    def taken_cores(self) -> int:
        """The number of cores of the run itself that attempts hold, on unavailable nodes too."""
        return self.local.taken_cores

    def set_available(self, name: str, reachable: bool) -> None:
        """Make a node available for allocation or not; cores in use stay in use until they are released. A drained node
        stays unavailable."""
        found = self._found.get(name)
        if found is not None:
            node, group = found
            node.reachable = reachable
            self._change(node, group)

    def set_drained(self, name: str, drained: bool) -> None:
        """Keep a node from getting attempts, whether or not it is reachable."""
        found = self._found.get(name)
        if found is not None:
            node, group = found
            node.drained = drained
            self._change(node, group)

    def _change(self, node: Node, group: NodeGroup) -> None:
        available = node.reachable and not node.drained
        if node.available != available:
            self.version += 1
            _offer(node, group, available)

    def why_never(self, request: ResourceRequest) -> str | None:
        """Why this run cannot satisfy the request even if nothing is taken; None if it can."""
        return self.counters.why_never(request.extra) or why_never(request, self.specs)

    def allocate(self, request: ResourceRequest) -> Grant | None:
        """Take the largest grant within the request that fits now; None if none fits."""
        extra = request.extra
        if extra is not None and not self.counters.has(extra):
            return None
        grant = self.target(request).allocate(request)
        if grant is not None and extra is not None:
            self.counters.take(extra)
        return grant

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """Context manager: allocate nothing on the node with this name."""
        node, group = self._found.get(name, (None, None))
        if node is None or group is None or not node.available:
            yield
            return
        ends = node.expected_ends
        _offer(node, group, False)
        try:
            yield
        finally:
            _offer(node, group, True)
            node.expected_ends = ends  # nothing was released

    def release(self, grant: Grant) -> None:
        """Free the resources of a grant."""
        self.grants_released += 1
        if grant.extra is not None:
            self.counters.release(grant.extra)
        self.put_back(grant)

    def put_back(self, grant: Grant) -> None:
        """Free the resources on nodes of a grant that was not used."""
        extra = grant.extra
        for part in grant.parts:
            found = self._found.get(part.node)
            if found is not None:
                node, group = found
                before = node.nfree if node.available else 0
                node.release(part, extra)
                group.update(node, before)

    def claim(self, grant: Grant) -> Grant:
        """Take the resources of an attempt of an earlier manager; returns the part of the grant that exists.

        Hosts report one after another, so an attempt that used a core before may not be known to have ended yet. A
        core that is not free may be claimed; it is free when all its holders have released it. The same holds for
        GPUs, memory and counters.
        """
        self.version += 1
        parts = []
        extra = grant.extra
        if extra is not None:
            self.counters.take(extra)
        for part in grant.parts:
            found = self._found.get(part.node)
            if found is not None:
                node, group = found
                before = node.nfree if node.available else 0
                part = node.claim(part, extra)
                group.update(node, before)
            parts.append(part)
        return Grant(tuple(parts), extra)


def _offer(node: Node, group: NodeGroup, available: bool) -> None:
    """Let a group allocate the free cores of a node, or not."""
    before = node.nfree if node.available else 0
    node.available = available
    group.update(node, before)
