"""The resource pool: nodes with cores, GPUs and memory, and what is free of them.

The nodes with at least k free cores are kept as one bit mask for each k that was ever requested, so that an allocation
costs the same on one node and on a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.description.model import Amount, ResourceRequest


class NodeSpec(Struct, frozen=True):
    """The resources of a node as detected or given by the user."""

    name: str
    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory: int = 0
    """Memory in MiB; 0 if unknown."""
    claimed: int = 0
    """Number of further cores claimed by other runs of the user."""


class Node:
    """A node of the pool, and what is free of it."""

    __slots__ = ("available", "bit", "bits", "contested", "free", "gpus", "memory", "nfree", "spec")

    def __init__(self, spec: NodeSpec, position: int) -> None:
        self.spec = spec
        self.bit = 1 << position
        self.bits = {core: 1 << number for number, core in enumerate(spec.cores)}
        self.available = False
        self.free = (1 << len(spec.cores)) - 1
        """Free cores: one bit for each core of `spec.cores`."""
        self.nfree = len(spec.cores)
        self.gpus = list(spec.gpus)
        self.memory = spec.memory
        self.contested: dict[int | str, int] = {}
        """Cores and GPUs claimed by more than one attempt, with the number of additional claims."""

    @property
    def is_idle(self) -> bool:
        """Whether all cores of the node are free."""
        return 0 < self.nfree == len(self.spec.cores)

    def take_cores(self, count: int) -> tuple[int, ...]:
        """Take the free cores with the lowest numbers."""
        ids = self.spec.cores
        if count == len(ids):
            self.free = 0
            self.nfree = 0
            return ids
        taken = []
        free = self.free
        for _ in range(count):
            low = free & -free
            free ^= low
            taken.append(ids[low.bit_length() - 1])
        self.free = free
        self.nfree -= count
        return tuple(taken)

    def release(self, part: NodePart) -> None:
        if self.contested:
            part = self._uncontested(part)
        if len(part.cores) == len(self.bits):
            self.free = (1 << len(self.bits)) - 1
        else:
            for core in part.cores:
                self.free |= self.bits[core]
        self.nfree += len(part.cores)
        self.memory += part.memory
        if part.gpus:
            self.gpus = sorted([*self.gpus, *part.gpus], key=self.spec.gpus.index)

    def claim(self, part: NodePart) -> NodePart:
        """Take the part of `part` that exists on this node, even if another attempt still holds it."""
        cores = tuple([core for core in part.cores if core in self.bits])
        gpus = tuple([gpu for gpu in part.gpus if gpu in self.spec.gpus])
        for core in cores:
            if self.free & self.bits[core]:
                self.free ^= self.bits[core]
                self.nfree -= 1
            else:
                self.contested[core] = self.contested.get(core, 0) + 1
        for gpu in gpus:
            if gpu in self.gpus:
                self.gpus.remove(gpu)
            else:
                self.contested[gpu] = self.contested.get(gpu, 0) + 1
        self.memory -= part.memory
        return NodePart(part.node, cores, gpus, part.memory)

    def _uncontested(self, part: NodePart) -> NodePart:
        """Drop one claim on everything in `part`; returns what no other attempt holds."""
        return replace(
            part,
            cores=tuple([core for core in part.cores if not self._drop_claim(core)]),
            gpus=tuple([gpu for gpu in part.gpus if not self._drop_claim(gpu)]),
        )

    def _drop_claim(self, thing: int | str) -> bool:
        """Drop one claim on a core or GPU; True if another attempt still holds it."""
        others = self.contested.pop(thing, 0)
        if others > 1:
            self.contested[thing] = others - 1
        return others > 0


class Pool:
    """All nodes of the run. A grant is exclusive until it is released."""

    def __init__(self, specs: Sequence[NodeSpec]) -> None:
        self.nodes = [Node(spec, position) for position, spec in enumerate(specs)]
        self._by_name = {node.spec.name: node for node in self.nodes}
        self.total_cores = sum(len(spec.cores) for spec in specs)
        self._largest = max((len(spec.cores) for spec in specs), default=0)
        self.free_cores = 0
        self.idle = 0
        """Bit mask of the available nodes that are idle."""
        self.with_free: dict[int, int] = {1: 0}
        """Bit masks of the available nodes with at least so many free cores, by number of cores."""

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def node(self, name: str) -> Node:
        return self._by_name[name]

    @property
    def taken_cores(self) -> int:
        """The number of cores held by attempts, on unavailable nodes too."""
        return self.total_cores - sum(node.nfree for node in self.nodes)

    def set_available(self, name: str, available: bool) -> None:
        """Make a node available for allocation or not; cores in use stay in use until they are released."""
        node = self._by_name.get(name)
        if node is not None and node.available != available:
            before = node.nfree if node.available else 0
            node.available = available
            self._update(node, before)

    def release(self, grant: Grant) -> None:
        for part in grant.parts:
            node = self._by_name.get(part.node)
            if node is not None:
                before = node.nfree if node.available else 0
                node.release(part)
                self._update(node, before)

    def claim(self, grant: Grant) -> Grant:
        """Take the resources of an attempt of an earlier manager; returns the part of the grant that exists.

        Hosts report one after another, so an attempt that used a core before may not be known to have ended yet. A
        core that is not free may be claimed; it is free when all its holders have released it.
        """
        parts = []
        for part in grant.parts:
            node = self._by_name.get(part.node)
            if node is not None:
                before = node.nfree if node.available else 0
                part = node.claim(part)
                self._update(node, before)
            parts.append(part)
        return Grant(tuple(parts))

    def allocate(self, request: ResourceRequest) -> Grant | None:
        """Take the largest grant within the request that fits now; None if none fits."""
        if request.cores is None:
            assert request.nodes is not None
            return self._whole_nodes(request, request.nodes)
        if request.nodes is not None:
            return self._cores_on_each(request, request.nodes, request.cores)
        if request.one_node:
            return self._cores_on_one(request, request.cores)
        return self._cores_anywhere(request.cores)

    def _cores_anywhere(self, cores: Amount) -> Grant | None:
        want = self.free_cores if cores.most is None else min(cores.most, self.free_cores)
        if want < cores.least or want == 0:
            return None
        fitting = self._nodes_with(want) if want <= self._largest else 0
        if fitting:
            return Grant((self._take(self.nodes[_lowest(fitting)], want),))
        parts = []
        for node in self._in_order(self.with_free[1]):
            parts.append(self._take(node, min(want, node.nfree)))
            want -= len(parts[-1].cores)
            if want == 0:
                break
        return Grant(tuple(parts))

    def _cores_on_one(self, request: ResourceRequest, cores: Amount) -> Grant | None:
        best: Node | None = None
        for node in self._candidates(self._nodes_with(cores.least), request):
            if cores.most is not None and node.nfree >= cores.most:
                best = node
                break
            if best is None or node.nfree > best.nfree:
                best = node
        if best is None:
            return None
        count = best.nfree if cores.most is None else min(cores.most, best.nfree)
        return Grant((self._take(best, count, request),))

    def _cores_on_each(self, request: ResourceRequest, nodes: Amount, cores: Amount) -> Grant | None:
        """Choose as many nodes as have the minimum of cores, then as many cores on each as all of them have."""
        fixed = cores.least == cores.most
        chosen: list[Node] = []
        for node in self._candidates(self._nodes_with(cores.least), request):
            chosen.append(node)
            if fixed and len(chosen) == nodes.most:
                break
        if len(chosen) < nodes.least or not chosen:
            return None
        if not fixed:
            chosen = sorted(chosen, key=lambda node: -node.nfree)[: nodes.most]
            chosen.sort(key=lambda node: node.bit)
        count = min(node.nfree for node in chosen)
        if cores.most is not None:
            count = min(count, cores.most)
        return Grant(tuple([self._take(node, count, request) for node in chosen]))

    def _whole_nodes(self, request: ResourceRequest, nodes: Amount) -> Grant | None:
        chosen: list[Node] = []
        for node in self._candidates(self.idle, request):
            chosen.append(node)
            if len(chosen) == nodes.most:
                break
        if len(chosen) < nodes.least or not chosen:
            return None
        return Grant(tuple([self._take(node, node.nfree, request) for node in chosen]))

    def _candidates(self, mask: int, request: ResourceRequest) -> Iterator[Node]:
        for node in self._in_order(mask):
            if len(node.gpus) >= request.gpus and (not request.memory or node.memory >= request.memory):
                yield node

    def _in_order(self, mask: int) -> Iterator[Node]:
        while mask:
            low = mask & -mask
            mask ^= low
            yield self.nodes[low.bit_length() - 1]

    def _nodes_with(self, count: int) -> int:
        """The mask of nodes with at least `count` free cores, kept up to date after the first call."""
        mask = self.with_free.get(count)
        if mask is None:
            mask = _mask(node for node in self.nodes if node.available and node.nfree >= count)
            self.with_free[count] = mask
        return mask

    def _take(self, node: Node, count: int, request: ResourceRequest | None = None) -> NodePart:
        before = node.nfree
        cores = node.take_cores(count)
        self._update(node, before)
        if request is None or not (request.gpus or request.memory):
            return NodePart(node.spec.name, cores)
        gpus = tuple(node.gpus[: request.gpus])
        del node.gpus[: request.gpus]
        node.memory -= request.memory
        return NodePart(node.spec.name, cores, gpus, request.memory)

    def _update(self, node: Node, before: int) -> None:
        after = node.nfree if node.available else 0
        self.free_cores += after - before
        bit = node.bit
        for count, mask in self.with_free.items():
            if before < count <= after:
                self.with_free[count] = mask | bit
            elif after < count <= before:
                self.with_free[count] = mask & ~bit
        if after == len(node.bits) > 0:
            self.idle |= bit
        elif before == len(node.bits):
            self.idle &= ~bit


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _mask(nodes: Iterable[Node]) -> int:
    mask = 0
    for node in nodes:
        mask |= node.bit
    return mask
