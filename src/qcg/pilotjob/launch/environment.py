"""What a job finds in its environment about the resources it was given, and what it does not find there."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.launch.binding import bound_cpus
from qcg.pilotjob.launch.site import Site

MARKER = "QCG_PM_STEP_ID"


def job_environment(grant: Grant, run_id: str, site: Site) -> dict[str, str]:
    first = grant.parts[0]
    sizes = tuple([(part.node, len(part.cores)) for part in grant.parts])
    environment = _of_sizes(sizes, site.slurm_environment).copy()
    environment["QCG_PM_CPU_SET"] = ",".join(map(str, bound_cpus(first, site) or first.cores))
    environment[MARKER] = f"{site.instance}.{run_id}"
    if site.zmq_address:
        environment["QCG_PM_ZMQ_ADDRESS"] = site.zmq_address
        environment["QCG_PM_CONTACT"] = site.contact
    if first.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = environment["QCG_PM_GPUS"] = ",".join(first.gpus)
    elif site.hides_gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment


# As many cores of the same nodes are given again and again.
@lru_cache(maxsize=4096)
def _of_sizes(sizes: tuple[tuple[str, int], ...], slurm: bool) -> dict[str, str]:
    """What follows from the number of cores on each node."""
    nodes = ",".join([node for node, _ in sizes])
    per_node = [count for _, count in sizes]
    cores = str(sum(per_node))
    environment = {
        "QCG_PM_NNODES": str(len(sizes)),
        "QCG_PM_NODELIST": nodes,
        "QCG_PM_NPROCS": cores,
        "QCG_PM_NTASKS": cores,
        "QCG_PM_TASKS_PER_NODE": ",".join(map(str, per_node)),
    }
    if slurm:
        environment.update(_slurm_environment(nodes, per_node, cores))
    return environment


def _slurm_environment(nodes: str, per_node: list[int], cores: str) -> dict[str, str]:
    count = str(len(per_node))
    compressed = compress(per_node)
    return {
        "SLURM_NNODES": count,
        "SLURM_NODELIST": nodes,
        "SLURM_NPROCS": cores,
        "SLURM_NTASKS": cores,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_NODES": count,
        "SLURM_STEP_NUM_TASKS": cores,
        "SLURM_NTASKS_PER_NODE": ",".join(map(str, per_node)) if len(set(per_node)) > 1 else str(per_node[0]),
        "SLURM_STEP_TASKS_PER_NODE": compressed,
        "SLURM_TASKS_PER_NODE": compressed,
    }


def compress(numbers: list[int]) -> str:
    """`4(x2),2` for 4, 4, 2: the way Slurm writes numbers per node."""
    runs = [(number, len(list(group))) for number, group in groupby(numbers)]
    return ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in runs)
