"""What a job finds in its environment about the resources it was given, and what it does not find there."""

from __future__ import annotations

from itertools import groupby

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.launch.binding import bound_cpus
from qcg.pilotjob.launch.site import Site

MARKER = "QCG_PM_STEP_ID"


def job_environment(grant: Grant, run_id: str, site: Site) -> dict[str, str]:
    parts = grant.parts
    nodes = ",".join([part.node for part in parts])
    cores = str(grant.ncores)
    environment = {
        "QCG_PM_NNODES": str(len(parts)),
        "QCG_PM_NODELIST": nodes,
        "QCG_PM_NPROCS": cores,
        "QCG_PM_NTASKS": cores,
        MARKER: f"{site.instance}.{run_id}",
        "QCG_PM_TASKS_PER_NODE": ",".join([str(len(part.cores)) for part in parts]),
        "QCG_PM_CPU_SET": ",".join(map(str, bound_cpus(parts[0], site) or parts[0].cores)),
    }
    if site.zmq_address:
        environment["QCG_PM_ZMQ_ADDRESS"] = site.zmq_address
        environment["QCG_PM_CONTACT"] = site.contact
    if parts[0].gpus:
        gpus = ",".join(parts[0].gpus)
        environment["CUDA_VISIBLE_DEVICES"] = gpus
        environment["QCG_PM_GPUS"] = gpus
    elif site.hides_gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if site.slurm_environment:
        environment.update(_slurm_environment(grant, nodes, cores))
    return environment


def _slurm_environment(grant: Grant, nodes: str, cores: str) -> dict[str, str]:
    count = str(len(grant.parts))
    per_node = [len(part.cores) for part in grant.parts]
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
