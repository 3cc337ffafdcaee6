"""Finds the nodes of a run: the options `--resources` and `--nodes`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from qcg.pilotjob.cluster.base import Allocation, NodeRange
from qcg.pilotjob.cluster.errors import ClusterError, NoAllocation, RangeError
from qcg.pilotjob.cluster.local.machine import Nodes, local_nodes
from qcg.pilotjob.cluster.registry import batch_system, system_in_use

log = logging.getLogger(__name__)

ALL_NODES = NodeRange()


def find_nodes(
    source: str, nodes: str | None, environ: Mapping[str, str], part: NodeRange = ALL_NODES
) -> Nodes | Allocation:
    """The allocation, or `part` of its nodes, or this machine.

    `source`: the value of `--resources`. `auto` is the allocation where there is one and `nodes` is not given.
    """
    if source not in ("auto", "local"):
        return part.of(_allocation(source, nodes, environ))
    if source == "auto" and nodes is None and (part != ALL_NODES or system_in_use(environ) is not None):
        try:
            return part.of((system_in_use(environ) or batch_system()).find_allocation(environ))
        except NoAllocation as error:
            if part != ALL_NODES:
                hint = (system_in_use(environ) or batch_system()).start_hint
                raise RangeError(
                    f"begin and end choose nodes of an allocation, but {error}; {hint}, or leave them out"
                ) from None
            log.warning("%s; this machine alone is used", error)
    return local_nodes(nodes, environ)


def _allocation(source: str, nodes: str | None, environ: Mapping[str, str]) -> Allocation:
    name, _, argument = source.partition(":")
    system = batch_system(name)
    if nodes is not None:
        raise ClusterError(
            f"--nodes and --cores make virtual nodes of this machine, --resources {source} takes real ones: leave out"
            " one"
        )
    try:
        return system.find_allocation(environ, argument)
    except NoAllocation as error:
        raise ClusterError(
            f"--resources {source}: {error}; {system.start_hint}, or leave the option out to use this machine"
        ) from None
