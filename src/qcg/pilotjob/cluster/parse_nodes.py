"""`--nodes`: `4`, `n1:2`, `4,2,2`, `n1:4, n2:4`."""

from __future__ import annotations

import re

from qcg.pilotjob.cluster.errors import ClusterError

_ENTRY = re.compile(r"(?:(?P<name>[^\s:,\[\]{}()'\"]+)\s*:\s*|:\s*)?(?P<cores>[0-9]+)")
_DIGITS = 20
"""That are read of a number: one with more is too large in any case."""
_FORMS = "write 4, n1:2, 4,2,2 or n1:4,n2:4"

MOST_CORES = 10_000
"""Of one node: what is kept of it grows with their square."""
MOST_IN_ALL = 10_000_000


def parse_nodes(text: str) -> list[tuple[str, int]]:
    """Names and numbers of cores; nodes without a name are called n0, n1 … by their place."""
    nodes: dict[str, int] = {}
    for place, entry in enumerate(text.split(",")):
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            raise ClusterError(f"--nodes: {entry.strip()[:100]!r} is not a node; {_FORMS}")
        name = match["name"] or f"n{place}"
        cores = int(match["cores"][:_DIGITS])
        if not 1 <= cores <= MOST_CORES:
            said = match["cores"] if len(match["cores"]) < _DIGITS else "so many"
            raise ClusterError(f"--nodes: node {name[:100]!r} cannot have {said} cores; give it 1 to {MOST_CORES:,}")
        if name in nodes:
            raise ClusterError(f"--nodes: two nodes are called {name!r}; give each its own name")
        nodes[name] = cores
    if sum(nodes.values()) > MOST_IN_ALL:
        raise ClusterError(f"--nodes: {sum(nodes.values()):,} cores are too many; {MOST_IN_ALL:,} is the most in all")
    return list(nodes.items())
