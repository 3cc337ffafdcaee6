"""Parses `--nodes`, which describes virtual nodes: `4`, `2x4`, `n1:2`, `4,2,2`, `n1:4, n2:4`, `n1:8,fpga=2`."""

from __future__ import annotations

import re
from typing import NamedTuple

from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.description.counters import parse_counter, sorted_counters
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.model import Counters

_ENTRY = re.compile(r"(?:(?P<name>[^\s:,\[\]{}()'\"]+)\s*:\s*|:\s*|(?P<count>[0-9]+)\s*[xX]\s*)?(?P<cores>[0-9]+)")
_DIGITS = 20
"""Digits of a number that are read; a number with more is too large in any case."""
_FORMS = "write 4, 2x4, n1:2, 4,2,2, n1:4,n2:4 or n1:4,fpga=2"

MOST_CORES = 10_000
"""Most cores of one node: memory for a node grows with the square of this number."""
MOST_IN_ALL = 10_000_000
"""Most cores of all nodes together."""


class VirtualNode(NamedTuple):
    """A node as described by the user."""

    name: str
    cores: int
    counters: Counters = ()


def parse_nodes(text: str) -> list[VirtualNode]:
    """The nodes. Nodes without a name are called n0, n1 … by their position. Counters belong to the node before them,
    or to all nodes of `2x4`."""
    nodes: dict[str, VirtualNode] = {}
    latest: list[str] = []
    """Names of the nodes of the entry before."""
    total = 0
    for entry in text.split(","):
        if "=" in entry and latest:
            for name in latest:
                nodes[name] = _with_counter(nodes[name], entry.strip())
            continue
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            raise ClusterError(f"--nodes: {entry.strip()[:100]!r} is not a node; {_FORMS}")
        count = 1 if match["count"] is None else int(match["count"][:_DIGITS])
        name = match["name"] or f"n{len(nodes)}"
        cores = int(match["cores"][:_DIGITS])
        if not 1 <= cores <= MOST_CORES:
            said = match["cores"] if len(match["cores"]) < _DIGITS else "so many"
            raise ClusterError(f"--nodes: node {name[:100]!r} cannot have {said} cores; give it 1 to {MOST_CORES:,}")
        if count < 1:
            raise ClusterError(f"--nodes: {entry.strip()[:100]!r} is no node at all; {_FORMS}")
        total += count * cores
        if total > MOST_IN_ALL:
            raise ClusterError(f"--nodes: {total:,} cores are too many; {MOST_IN_ALL:,} is the most in all")
        for _ in range(count):
            name = match["name"] or f"n{len(nodes)}"
            if name in nodes:
                raise ClusterError(f"--nodes: two nodes are called {name!r}; give each its own name")
            nodes[name] = VirtualNode(name, cores)
        latest = list(nodes)[-count:]
    return list(nodes.values())


def _with_counter(node: VirtualNode, entry: str) -> VirtualNode:
    try:
        return node._replace(counters=sorted_counters([*node.counters, parse_counter(entry)]))
    except DescriptionError as error:
        raise ClusterError(f"--nodes: node {node.name[:100]!r}: {error}") from None
