"""What there is to give: nodes with cores, GPUs and memory, and who has them.

Which nodes have at least k cores free is kept as one bit mask for each k that was ever asked for, so that finding a
place costs the same on one node and on a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.description.model import Amount, Request


class NodeSpec(Struct, frozen=True):
    """A node as the cluster room found it."""

    name: str
    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory: int = 0
    """MiB; 0 where it is not known."""


class Node:
    __slots__ = ("available", "bit", "free", "gpus", "memory", "nfree", "spec")

    def __init__(self, spec: NodeSpec, position: int) -> None:
        self.spec = spec
        self.bit = 1 << position
        self.available = False
        self.free = (1 << len(spec.cores)) - 1
        """One bit for each core of `spec.cores`."""
        self.nfree = len(spec.cores)
        self.gpus = list(spec.gpus)
        self.memory = spec.memory

    @property
    def is_idle(self) -> bool:
        return self.nfree == len(self.spec.cores)

    def take_cores(self, count: int) -> tuple[int, ...]:
        """The lowest free ones."""
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

    def give(self, part: NodePart, sign: int) -> None:
        """Take exactly `part` away (-1) or give it back (+1)."""
        for core in part.cores:
            self.free ^= 1 << self.spec.cores.index(core)
        self.nfree += sign * len(part.cores)
        self.memory += sign * part.memory
        if sign > 0:
            self.gpus = sorted(self.gpus + list(part.gpus), key=self.spec.gpus.index)
        else:
            self.gpus = [gpu for gpu in self.gpus if gpu not in part.gpus]


class Pool:
    """All nodes. A grant is exclusive until it is released."""

    def __init__(self, specs: Sequence[NodeSpec]) -> None:
        self.nodes = [Node(spec, position) for position, spec in enumerate(specs)]
        self._by_name = {node.spec.name: node for node in self.nodes}
        self.total_cores = sum(len(spec.cores) for spec in specs)
        self.free_cores = 0
        self._idle = 0
        self._with_free: dict[int, int] = {1: 0}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def node(self, name: str) -> Node:
        return self._by_name[name]

    def set_available(self, name: str, available: bool) -> None:
        """Only available nodes are given to anybody; what is taken from the others stays taken until it is released."""
        node = self._by_name[name]
        if node.available != available:
            before = node.nfree if node.available else 0
            node.available = available
            self._update(node, before)

    def release(self, grant: Grant) -> None:
        for part in grant.parts:
            node = self._by_name[part.node]
            before = node.nfree if node.available else 0
            node.give(part, +1)
            self._update(node, before)

    def claim(self, grant: Grant) -> bool:
        """Take exactly this, as a run that is found again has it; False when a part of it is not there or not free."""
        for part in grant.parts:
            node = self._by_name.get(part.node)
            if node is None or not set(part.cores) <= set(node.spec.cores) or not set(part.gpus) <= set(node.gpus):
                return False
            if any(not node.free >> node.spec.cores.index(core) & 1 for core in part.cores):
                return False
        for part in grant.parts:
            node = self._by_name[part.node]
            before = node.nfree if node.available else 0
            node.give(part, -1)
            self._update(node, before)
        return True

    def allocate(self, request: Request) -> Grant | None:
        """The largest grant within the request that fits now, or nothing."""
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
        fitting = self._nodes_with(want)
        if fitting:
            return Grant((self._take(self.nodes[_lowest(fitting)], want),))
        parts = []
        for node in self._in_order(self._with_free[1]):
            parts.append(self._take(node, min(want, node.nfree)))
            want -= len(parts[-1].cores)
            if want == 0:
                break
        return Grant(tuple(parts))

    def _cores_on_one(self, request: Request, cores: Amount) -> Grant | None:
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

    def _cores_on_each(self, request: Request, nodes: Amount, cores: Amount) -> Grant | None:
        """As many nodes as have the least, then as many cores on each as all of them have."""
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

    def _whole_nodes(self, request: Request, nodes: Amount) -> Grant | None:
        chosen: list[Node] = []
        for node in self._candidates(self._idle, request):
            chosen.append(node)
            if len(chosen) == nodes.most:
                break
        if len(chosen) < nodes.least or not chosen:
            return None
        return Grant(tuple([self._take(node, node.nfree, request) for node in chosen]))

    def _candidates(self, mask: int, request: Request) -> Iterator[Node]:
        for node in self._in_order(mask):
            if len(node.gpus) >= request.gpus and node.memory >= request.memory:
                yield node

    def _in_order(self, mask: int) -> Iterator[Node]:
        while mask:
            low = mask & -mask
            mask ^= low
            yield self.nodes[low.bit_length() - 1]

    def _nodes_with(self, count: int) -> int:
        """The mask of nodes with at least `count` cores free, kept up to date from the first time it is asked for."""
        mask = self._with_free.get(count)
        if mask is None:
            mask = _mask(node for node in self.nodes if node.available and node.nfree >= count)
            self._with_free[count] = mask
        return mask

    def _take(self, node: Node, count: int, request: Request | None = None) -> NodePart:
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
        for count, mask in self._with_free.items():
            if before < count <= after:
                self._with_free[count] = mask | bit
            elif after < count <= before:
                self._with_free[count] = mask & ~bit
        if node.available and node.is_idle:
            self._idle |= bit
        else:
            self._idle &= ~bit


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _mask(nodes: Iterable[Node]) -> int:
    mask = 0
    for node in nodes:
        mask |= node.bit
    return mask
