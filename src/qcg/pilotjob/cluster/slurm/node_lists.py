"""Expands node lists of Slurm: `n[1-3,7]`, `r[01-02]n[1-4],login`."""

from __future__ import annotations

import re

from qcg.pilotjob.cluster.errors import ClusterError

_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")


def expand(text: str) -> list[str]:
    """The node names, in the order of the list."""
    # Imported here: it loads slowly, and only allocations need it.
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    names: list[str] = []
    # One NodeSet for each piece: a NodeSet of the whole list would be sorted.
    for piece in _COMMA_OUTSIDE_BRACKETS.split(text):
        try:
            found = list(NodeSet(piece, resolver=RESOLVER_NOGROUP))
        except NodeSetException as error:
            raise ClusterError(f"{text[:200]!r} is not a list of nodes: {error}") from None
        if not found:
            raise ClusterError(f"{text[:200]!r} is not a list of nodes: one of its names is empty")
        names += found
    return names
