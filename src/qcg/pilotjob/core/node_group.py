"""Groups of nodes in which grants are allocated: the nodes of the run itself, and each remote host.

The nodes with at least k free cores are kept as one bit mask for each k that was ever requested, so that an allocation
costs the same on one node and on a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Union

from qcg.pilotjob.core.feasibility import least_cores, why_never_in
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.core.resources import Hidden, Node, NodeSpec, Spare
from qcg.pilotjob.description.model import Amount, ExtraResources, ResourceRequest


class NodeGroup:
    """Nodes among which a grant can be spread. A grant is exclusive until it is released."""

    def __init__(self, name: str, specs: Sequence[NodeSpec]) -> None:
        self.name = name
        self.nodes = [Node(spec, position) for position, spec in enumerate(specs)]
        self.groups = (self,)
        """The groups in which a request for this group can be granted."""
        self.total_cores = sum(len(spec.cores) for spec in specs)
        self._largest = max((len(spec.cores) for spec in specs), default=0)
        self.free_cores = 0
        self.idle = 0
        """Bit mask of the available nodes that are idle."""
        self.with_free: dict[int, int] = {1: 0}
        """Bit masks of the available nodes with at least so many free cores, by number of cores."""

    @property
    def taken_cores(self) -> int:
        """The number of cores held by attempts, on unavailable nodes too."""
        return self.total_cores - sum(node.nfree for node in self.nodes)

    def least_cores(self, request: ResourceRequest) -> int:
        """The fewest cores of any grant for the request: a quick test before an allocation."""
        return least_cores(request)

    def reserved_for(self, request: ResourceRequest) -> NodeGroup | None:
        """The group whose cores are kept free for a request that has waited too long.

        None when the available nodes cannot satisfy it: no cores are kept free for a node that is away.
        """
        available = [node.spec for node in self.nodes if node.available]
        return self if why_never_in(request, available) is None else None

    def allocate(self, request: ResourceRequest) -> Grant | None:
        """Take the largest grant within the request that fits now; None if none fits."""
        if request.cores is None:
            assert request.nodes is not None
            return self._whole_nodes(request, request.nodes)
        if request.nodes is not None:
            return self._cores_on_each(request, request.nodes, request.cores)
        if request.one_node:
            return self._cores_on_one(request, request.cores)
        return self._cores_anywhere(request.cores, request.extra)

    def allocate_outside(self, blocked: Set[NodeGroup], request: ResourceRequest) -> Grant | None:
        """Like `allocate`; None if this group is blocked."""
        return None if self in blocked else self.allocate(request)

    def hide(self, node: Node, spare: Spare) -> Hidden | None:
        """Hide free resources of a node from allocations, except for the spare ones; None if there are
        none."""
        before, ends = (node.nfree if node.available else 0), node.expected_ends
        hidden = node.hide(spare)
        if hidden is not None:
            self.update(node, before)
            node.expected_ends = ends
        return hidden

    def show(self, node: Node, hidden: Hidden) -> None:
        """Show hidden resources again."""
        before, ends = (node.nfree if node.available else 0), node.expected_ends
        node.show(hidden)
        self.update(node, before)
        node.expected_ends = ends

    def _cores_anywhere(self, cores: Amount, extra: ExtraResources | None) -> Grant | None:
        want = self.free_cores
        if cores.most is not None and cores.most < want:
            want = cores.most
        if want < cores.least or want == 0:
            return None
        fitting = self._nodes_with(want) if want <= self._largest else 0
        if fitting:
            node = self.nodes[(fitting & -fitting).bit_length() - 1]
            return Grant((self._take(node, want),), extra)
        parts = []
        for node in self._in_order(self.with_free[1]):
            parts.append(self._take(node, min(want, node.nfree)))
            want -= len(parts[-1].cores)
            if want == 0:
                break
        return Grant(tuple(parts), extra)

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
        return Grant((self._take(best, count, request),), request.extra)

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
        return Grant(tuple([self._take(node, count, request) for node in chosen]), request.extra)

    def _whole_nodes(self, request: ResourceRequest, nodes: Amount) -> Grant | None:
        chosen: list[Node] = []
        for node in self._candidates(self.idle, request):
            chosen.append(node)
            if len(chosen) == nodes.most:
                break
        if len(chosen) < nodes.least or not chosen:
            return None
        return Grant(tuple([self._take(node, node.nfree, request) for node in chosen]), request.extra)

    def _candidates(self, mask: int, request: ResourceRequest) -> Iterator[Node]:
        extra = request.extra
        for node in self._in_order(mask):
            if (
                len(node.gpus) >= request.gpus
                and (not request.memory or node.memory >= request.memory)
                and (extra is None or node.offers(extra))
            ):
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
        self.update(node, before)
        if request is None or not (request.gpus or request.memory or request.extra):
            return NodePart(node.spec.name, cores)
        return node.take_further(cores, request)

    def update(self, node: Node, before: int) -> None:
        """Bring totals and masks up to date after a change of a node; `before` is the number of cores that it offered
        before."""
        node.expected_ends = None
        after = node.nfree if node.available else 0
        self.free_cores += after - before
        bit, with_free = node.bit, self.with_free
        if after > before:
            for count, mask in with_free.items():
                if before < count <= after:
                    with_free[count] = mask | bit
        else:
            for count, mask in with_free.items():
                if after < count <= before:
                    with_free[count] = mask & ~bit
        cores = len(node.bits)
        if after == cores > 0:
            self.idle |= bit
        elif before == cores:
            self.idle &= ~bit


class SlotGroup(NodeGroup):
    """A host behind a batch system, which limits the number of attempts and named counters only: each attempt takes one
    slot, and no part of a GPU can be had."""

    def least_cores(self, request: ResourceRequest) -> int:
        return 1

    def allocate(self, request: ResourceRequest) -> Grant | None:
        extra = request.extra
        if extra is None:
            return self._cores_anywhere(_ONE, None)
        for node in self._in_order(self.with_free[1]):
            if not extra.gpu_share and node.offers(extra):
                return Grant((self._take(node, 1, ResourceRequest(extra=extra)),), extra)
        return None


class AnyHost:
    """Chooses a remote host for each attempt of a job that may run on any of them."""

    def __init__(self, groups: Sequence[NodeGroup]) -> None:
        self.groups = tuple(groups)

    @property
    def total_cores(self) -> int:
        """The cores of the largest host."""
        return max([group.total_cores for group in self.groups], default=0)

    @property
    def free_cores(self) -> int:
        """The free cores of the host that has most of them."""
        return max([group.free_cores for group in self.groups], default=0)

    def least_cores(self, request: ResourceRequest) -> int:
        return min([group.least_cores(request) for group in self.groups], default=1)

    def allocate(self, request: ResourceRequest) -> Grant | None:
        """Take a grant on one host: hosts with more free cores are tried first."""
        return self.allocate_outside(frozenset(), request)

    def allocate_outside(self, blocked: Set[NodeGroup], request: ResourceRequest) -> Grant | None:
        """Like `allocate`, on hosts that are not blocked."""
        for group in sorted(self.groups, key=lambda group: -group.free_cores):
            grant = group.allocate_outside(blocked, request)
            if grant is not None:
                return grant
        return None

    def reserved_for(self, request: ResourceRequest) -> NodeGroup | None:
        """The first host that can satisfy the request. Always the same one, so that its cores become free; the other
        hosts continue with later jobs."""
        for group in self.groups:
            if group.reserved_for(request) is not None:
                return group
        return None


Target = Union[NodeGroup, AnyHost]
"""Where the jobs of a queue line can run."""

_ONE = Amount()


def _mask(nodes: Iterable[Node]) -> int:
    mask = 0
    for node in nodes:
        mask |= node.bit
    return mask
