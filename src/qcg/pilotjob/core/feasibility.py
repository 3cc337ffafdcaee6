"""Could a request ever be given? A sentence when it could not."""

from __future__ import annotations

from collections.abc import Sequence

from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import Request


def least_cores(request: Request) -> int:
    """The fewest cores that any grant within the request holds: a quick test whether it is worth trying."""
    nodes = request.nodes.least if request.nodes else 1
    cores = request.cores.least if request.cores else 1
    return nodes * cores


def why_never(request: Request, nodes: Sequence[NodeSpec]) -> str | None:
    """Why these nodes, even all idle, cannot give the request; None when they can."""
    able = [node for node in nodes if len(node.gpus) >= request.gpus and node.memory >= request.memory]
    if not able and (request.gpus or request.memory):
        return f"{_extras(request)} on a node asked for, and no node has that"
    if request.nodes is None:
        assert request.cores is not None
        sizes = [len(node.cores) for node in able]
        exist = max(sizes, default=0) if request.one_node else sum(sizes)
        if request.cores.least <= exist:
            return None
        where = " on one node" if request.one_node else ""
        return f"{_count(request.cores.least, 'core')}{where} asked for, and {exist} exist"
    per_node = request.cores.least if request.cores else 1
    exist = sum(len(node.cores) >= per_node for node in able)
    if request.nodes.least <= exist:
        return None
    what = f" with {_count(per_node, 'core')} each" if request.cores else ""
    extras = f" and {_extras(request)}" if request.gpus or request.memory else ""
    return f"{_count(request.nodes.least, 'node')}{what}{extras} asked for, and {exist} exist"


def _extras(request: Request) -> str:
    wanted = []
    if request.gpus:
        wanted.append(_count(request.gpus, "GPU"))
    if request.memory:
        wanted.append(f"{request.memory} MiB of memory")
    return " and ".join(wanted)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
