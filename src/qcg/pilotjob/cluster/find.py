"""Where the nodes of a run come from: `--resources` and `--nodes`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from qcg.pilotjob.cluster.errors import ClusterError, NoAllocation
from qcg.pilotjob.cluster.local import Nodes, local_nodes
from qcg.pilotjob.cluster.slurm import Allocation, NodeRange, find_allocation, job_id_of
from qcg.pilotjob.common.options import NodeSource

log = logging.getLogger(__name__)


ALL_NODES = NodeRange()


def find_nodes(
    source: NodeSource, nodes: str | None, environ: Mapping[str, str], part: NodeRange = ALL_NODES
) -> Nodes | Allocation:
    """The allocation, or `part` of its nodes, or this machine. `auto` is the allocation where there is one and no nodes
    are given."""
    if source == "slurm":
        return part.of(_allocation(nodes, environ))
    if source == "auto" and nodes is None and (part != ALL_NODES or job_id_of(environ) is not None):
        try:
            return part.of(find_allocation(environ))
        except NoAllocation as error:
            if part != ALL_NODES:
                raise ClusterError(
                    f"--slurm-limit-nodes-range-begin and -end choose nodes of an allocation, but {error}; start inside"
                    " sbatch or salloc, or leave them out"
                ) from None
            log.warning("%s; this machine alone is used", error)
    return local_nodes(nodes, environ)


def _allocation(nodes: str | None, environ: Mapping[str, str]) -> Allocation:
    if nodes is not None:
        raise ClusterError(
            "--nodes and --cores make virtual nodes of this machine, --resources slurm takes real ones: leave out one"
        )
    try:
        return find_allocation(environ)
    except NoAllocation as error:
        raise ClusterError(
            f"--resources slurm: {error}; start inside sbatch or salloc, or leave the option out to use this machine"
        ) from None
