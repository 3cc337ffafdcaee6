"""Whether the nodes of a run can ever satisfy a resource request, and the message if they cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import structs

from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import ResourceRequest

MAX_SIZES = 3
"""Number of different node sizes that a message lists."""


def least_cores(request: ResourceRequest) -> int:
    """The fewest cores of any grant within the request: a quick test before an allocation."""
    nodes = request.nodes.least if request.nodes else 1
    cores = request.cores.least if request.cores else 1
    return nodes * cores


def why_never(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> str | None:
    """Why these nodes cannot satisfy the request even if all are idle; None if they can."""
    exist = capacity(request, nodes)
    if least(request) <= exist:
        return None
    if (request.gpus or request.memory) and not _able(request, nodes):
        return f"{describe_extras(request)} on a node requested, but no node has that"
    of_nodes = f" and {describe_extras(request)}" if request.nodes and (request.gpus or request.memory) else ""
    have = f": there {_sizes(nodes)}" if request.nodes and request.cores and nodes and not of_nodes else ""
    existing = "none exists" if not exist else "only 1 exists" if exist == 1 else f"only {exist} exist"
    return f"{describe_minimum(request)}{of_nodes} requested, but {existing}{have}{_claimed(request, nodes)}"


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
    able = _able(request, nodes)
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
    """The GPUs and memory requested on each node in words; empty if there are none."""
    wanted = []
    if request.gpus:
        wanted.append(count(request.gpus, "GPU"))
    if request.memory:
        wanted.append(f"{request.memory} MiB of memory")
    return " and ".join(wanted)


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 core`, `2 cores`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _able(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
    """The nodes with enough GPUs and memory."""
    return [node for node in nodes if len(node.gpus) >= request.gpus and node.memory >= request.memory]
