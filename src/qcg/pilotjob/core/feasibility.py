"""Whether the nodes of a run can ever satisfy a resource request, and the message if they cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import structs

from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import ANY_HOST, Amount, ExtraResources, ResourceRequest

MAX_SIZES = 3
"""Number of different node sizes that a message lists."""


def least_cores(request: ResourceRequest) -> int:
    """The fewest cores of any grant within the request: a quick test before an allocation."""
    nodes = request.nodes.least if request.nodes else 1
    cores = request.cores.least if request.cores else 1
    return nodes * cores


def why_never(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> str | None:
    """Why these nodes cannot satisfy the request even if all are idle; None if they can.

    Only nodes of the group that the request names count, and for any host, each remote host by itself.
    """
    if not request.host:
        return why_never_in(request, [node for node in nodes if not node.group])
    groups = groups_for(request, nodes)
    if not groups:
        host = "no remote host" if request.host == ANY_HOST else f"no host {request.host!r}"
        return f"there is {host} now"
    reasons = {name: why_never_in(request, members) for name, members in groups.items()}
    if None in reasons.values():
        return None
    return "; ".join(f"on host {name}: {reason}" for name, reason in reasons.items())


def groups_for(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> dict[str, list[NodeSpec]]:
    """The nodes on which the request can be satisfied, by group."""
    groups: dict[str, list[NodeSpec]] = {}
    for node in nodes:
        if node.group == request.host or (node.group and request.host == ANY_HOST):
            groups.setdefault(node.group, []).append(node)
    return groups


def fits(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> bool:
    """Whether one of the groups among these nodes has enough for the request."""
    return any(fits_in(request, members) for members in groups_for(request, nodes).values())


def fits_in(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> bool:
    """Whether these nodes of one group have enough for the request."""
    if any(node.slots for node in nodes):
        return any(node.cores and _gives_slot(request.extra, node) for node in nodes)
    return least(request) <= capacity(request, nodes)


def with_existing_memory(request: ResourceRequest, least: int, nodes: Sequence[NodeSpec]) -> ResourceRequest:
    """The request with as much of its memory as these nodes have for it, but not less than `least`."""
    amounts = {node.memory for node in nodes if least < node.memory < request.memory}
    for amount in (request.memory, *sorted(amounts, reverse=True)):
        limited = structs.replace(request, memory=amount)
        if fits(limited, nodes):
            return limited
    return structs.replace(request, memory=least)


def with_existing_cores(request: ResourceRequest, first: Amount, nodes: Sequence[NodeSpec]) -> ResourceRequest:
    """The request with as many of its cores as these nodes have for it, but not fewer than `first`."""
    assert request.cores is not None
    least, most = request.cores.least, request.cores.most
    numbers: set[int] = set()
    for members in groups_for(request, nodes).values():
        numbers.update([capacity(request, members)] if request.nodes is None else [len(node.cores) for node in members])
    possible = sorted([number for number in numbers if first.least < number < least], reverse=True)
    for number in (least, *possible):
        limited = structs.replace(request, cores=Amount(number, number if most == least else most))
        if fits(limited, nodes):
            return limited
    return structs.replace(request, cores=first)


def why_never_in(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> str | None:
    """Why these nodes of one group cannot satisfy the request even if all are idle; None if they can."""
    if fits_in(request, nodes):
        return None
    exist = capacity(request, nodes)
    extras = describe_extras(request)
    if request.extra is not None and request.extra.gpu_share and any(node.slots for node in nodes):
        return f"{extras} requested, but jobs go through a batch system there, which gives whole GPUs only"
    if extras and not able_nodes(request, nodes):
        return f"{extras} on a node requested, but no node has {_most_memory(request, nodes)}"
    of_nodes = f" and {extras}" if request.nodes and extras else ""
    have = f": there {_sizes(nodes)}" if request.nodes and request.cores and nodes and not of_nodes else ""
    existing = "none exists" if not exist else "only 1 exists" if exist == 1 else f"only {exist} exist"
    return f"{describe_minimum(request)}{of_nodes} requested, but {existing}{have}{_claimed(request, nodes)}"


def _most_memory(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> str:
    """The largest amount of memory of a node if only memory is missing, otherwise `that`."""
    most = max((node.memory for node in nodes), default=0)
    alone = not request.gpus and request.extra is None
    return f"more than {most} MiB" if alone and 0 < most < request.memory else "that"


def _claimed(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> str:
    """Advice about cores claimed by other runs, if the request would fit with them."""
    claimed = sum(node.claimed for node in nodes)
    whole = [structs.replace(node, cores=node.cores + (-1,) * node.claimed) for node in nodes]
    if not claimed or least(request) > capacity(request, whole):
        return ""
    return (
        f"; other runs of this user have claimed {count(claimed, 'core')}: with --share-cores or --no-bind a run uses"
        " all cores"
    )


def least(request: ResourceRequest) -> int:
    """The minimum number of nodes if the request is for nodes, otherwise of cores."""
    if request.nodes is not None:
        return request.nodes.least
    assert request.cores is not None
    return request.cores.least


def capacity(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> int:
    """The number of nodes or cores, whichever `least` counts, that these nodes have for the request."""
    able = able_nodes(request, nodes)
    if request.nodes is not None:
        per_node = request.cores.least if request.cores else 1
        return sum(len(node.cores) >= per_node for node in able)
    sizes = [len(node.cores) for node in able]
    return max(sizes, default=0) if request.one_node else sum(sizes)


def describe_minimum(request: ResourceRequest) -> str:
    """The minimum in words: `2 nodes with 3 cores each`, `4 cores on one node`."""
    if request.nodes is None:
        return count(least(request), "core") + (" on one node" if request.one_node else "")
    each = " each" if least(request) > 1 else ""
    cores = f" with {count(request.cores.least, 'core')}{each}" if request.cores else ""
    return count(least(request), "node") + cores


def _sizes(nodes: Sequence[NodeSpec]) -> str:
    """The nodes in words, largest first: `are 1 node with 3 cores, 2 nodes with 2 cores each`."""
    sizes = sorted(Counter(len(node.cores) for node in nodes).items(), reverse=True)
    words = [
        f"{count(number, 'node')} with {count(cores, 'core')}{' each' if number > 1 else ''}"
        for cores, number in sizes[:MAX_SIZES]
    ]
    more = ["others"] if len(sizes) > MAX_SIZES else []
    return ("is " if len(nodes) == 1 else "are ") + ", ".join([*words, *more])


def describe_extras(request: ResourceRequest) -> str:
    """The GPUs, memory and counters requested on each node in words; empty if there are none."""
    wanted = []
    if request.gpus:
        wanted.append(count(request.gpus, "GPU"))
    if request.extra is not None and request.extra.gpu_share:
        wanted.append(f"{share_text(request.extra.gpu_share)} GPU")
    if request.memory:
        wanted.append(f"{request.memory} MiB of memory")
    if request.extra is not None:
        wanted += [f"{number} {name}" for name, number in request.extra.on_node]
    return " and ".join(wanted)


def describe_counters(request: ResourceRequest) -> str:
    """The counters of the run requested in words; empty if there are none."""
    return (
        " and ".join(f"{number} {name}" for name, number in request.extra.of_run) if request.extra is not None else ""
    )


def share_text(share: int) -> str:
    """A part of a GPU in decimals: 500 thousandths are `0.5`."""
    return f"0.{share:03d}".rstrip("0")


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 core`, `2 cores`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def able_nodes(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
    """The nodes with enough GPUs, memory and counters."""
    able = [node for node in nodes if len(node.gpus) >= request.gpus and node.memory >= request.memory]
    extra = request.extra
    return (
        able if extra is None else [node for node in able if _has_gpu_for(extra, node) and _has_counters(extra, node)]
    )


def _has_gpu_for(extra: ExtraResources, node: NodeSpec) -> bool:
    return bool(node.gpus) or extra.gpu_share <= node.gpu_share


def _has_counters(extra: ExtraResources, node: NodeSpec) -> bool:
    counters = dict(node.counters)
    return all(number <= counters.get(name, 0) for name, number in extra.on_node)


def _gives_slot(extra: ExtraResources | None, node: NodeSpec) -> bool:
    """Whether a host behind a batch system has the counters; it gives no part of a GPU."""
    return extra is None or (not extra.gpu_share and _has_counters(extra, node))
