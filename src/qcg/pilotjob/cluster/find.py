"""Finds the nodes of a run: the options `--resources` and `--nodes`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from qcg.pilotjob.cluster.base import Allocation, BatchSystem, NodeRange
from qcg.pilotjob.cluster.errors import AllocationOver, ClusterError, NoAllocation, NoCommand, RangeError
from qcg.pilotjob.cluster.local.machine import Nodes, local_nodes
from qcg.pilotjob.cluster.registry import batch_system, system_for_submission, system_in_use

log = logging.getLogger(__name__)

ALL_NODES = NodeRange()


def find_nodes(
    source: str, nodes: str | None, environ: Mapping[str, str], part: NodeRange = ALL_NODES
) -> Nodes | Allocation:
    """The allocation, or `part` of its nodes, or this machine.

    `source`: the value of `--resources`. `auto` is the allocation where there is one and `nodes` is not given. Where a
    command of its batch system is missing, as in a container inside an allocation, `auto` is this machine.

    Raises: `ClusterError` also for `auto` when this process is in an allocation that cannot be used.
    """
    if source not in ("auto", "local"):
        return part.of(_allocation(source, nodes, environ))
    if source == "auto" and nodes is None and (part != ALL_NODES or system_in_use(environ) is not None):
        system = system_in_use(environ) or batch_system(system_for_submission(environ))
        try:
            allocation = system.find_allocation(environ)
        except (NoAllocation, NoCommand) as error:
            why = _why_none(system, error)
            if part != ALL_NODES:
                raise RangeError(
                    f"begin and end choose nodes of an allocation, but {why}; {system.start_hint}, or leave them out"
                ) from None
            log.warning("%s; this machine alone is used", why)
        except ClusterError as error:
            raise ClusterError(f"{error}; to use this machine alone, give --resources local or --nodes") from None
        else:
            return part.of(allocation)
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
    except (NoAllocation, NoCommand, AllocationOver) as error:
        other = "give --resources local" if isinstance(error, AllocationOver) else "leave the option out"
        raise ClusterError(
            f"--resources {source}: {_why_none(system, error)}; {system.start_hint}, or {other} to use this machine"
        ) from None


def _why_none(system: BatchSystem, error: ClusterError) -> str:
    """Why there is no allocation to use, as a clause."""
    return f"{error}, so {system.label} cannot be queried" if isinstance(error, NoCommand) else str(error)
