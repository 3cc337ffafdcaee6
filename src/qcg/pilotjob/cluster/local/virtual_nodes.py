"""Parses `--nodes`, which describes virtual nodes: `4`, `2x4`, `n1:2`, `4,2,2`, `n1:4, n2:4`."""

from __future__ import annotations

import re

from qcg.pilotjob.cluster.errors import ClusterError

_ENTRY = re.compile(r"(?:(?P<name>[^\s:,\[\]{}()'\"]+)\s*:\s*|:\s*|(?P<count>[0-9]+)\s*[xX]\s*)?(?P<cores>[0-9]+)")
_DIGITS = 20
"""Digits of a number that are read; a number with more is too large in any case."""
_FORMS = "write 4, 2x4, n1:2, 4,2,2 or n1:4,n2:4"

MOST_CORES = 10_000
"""Most cores of one node: memory for a node grows with the square of this number."""
MOST_IN_ALL = 10_000_000
"""Most cores of all nodes together."""


def parse_nodes(text: str) -> list[tuple[str, int]]:
    """Names and core counts of the nodes. Nodes without a name are called n0, n1 … by their position."""
    nodes: dict[str, int] = {}
    total = 0
    for entry in text.split(","):
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
            nodes[name] = cores
    return list(nodes.items())
