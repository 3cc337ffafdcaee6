"""What a job finds in its environment about the resources it was given, and what it does not find there."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby

from qcg.pilotjob.common.environment import JOB_ADDRESS, JOB_CONTACT, STEP_ID
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.launch.site import Site

NOT_FOR_JOBS = [
    # Of the step that is the agent: a program that finds these takes itself for a part of that step.
    "SLURM_STEP*",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_GTIDS",
    "SLURM_TASK_PID",
    "SLURM_SRUN_COMM_*",
    "SLURM_LAUNCH_NODE_IPADDR",
    "PMI_*",
    "PMI2_*",
    "PMIX_*",
    # How that step, or the allocation, was asked for: an `srun` of the job would take these for its own options.
    "SLURM_CPU_BIND*",
    "SLURM_MEM_BIND*",
    "SLURM_DISTRIBUTION",
    "SLURM_NTASKS_PER_*",
    "SLURM_CPUS_PER_TASK",
    "SLURM_TRES_PER_TASK",
    "SLURM_EXACT",
    # What the allocation has, of which the job has a part.
    "SLURM_JOB_CPUS_PER_NODE*",
    "SLURM_GPU*",
    "SLURM_JOB_GPUS",
    # CUDA_VISIBLE_DEVICES says it to all kinds of GPUs; a second list would choose among those of the first.
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
]
"""In an allocation, variables of the agent that would betray it, or mislead a job."""


_OF_USERS = frozenset({"SLURM_CONF"})
"""Set by users and sites, not by an allocation."""


def variables_of_allocation(names: Iterable[str]) -> tuple[str, ...]:
    """Variables that come from a Slurm allocation, or from a step in it.

    Hidden from jobs of a manager that does not use the allocation it runs in: `mpirun` would take its slots from the
    allocation, and an MPI program would take itself for a part of the step.
    """
    of_slurm = [name for name in names if name.startswith("SLURM") and name not in _OF_USERS]
    return (*sorted(of_slurm), "PMI_*", "PMI2_*", "PMIX_*")


def job_environment(
    grant: Grant, cpus: tuple[int, ...] | None, attempt_id: str, site: Site, *, slurm: bool
) -> dict[str, str]:
    """`cpus`: those of its first node that it is bound to. With `slurm`, also what Slurm would tell a job that has just
    this grant. `srun` and `mpirun` in the job believe it, too."""
    first = grant.parts[0]
    environment = _of_grant(grant, cpus, slurm).copy()
    environment[STEP_ID] = f"{site.instance}.{attempt_id}"
    if slurm and site.allocation:
        # An agent that was started without Slurm does not have them.
        environment["SLURM_JOB_ID"] = environment["SLURM_JOBID"] = site.allocation
    if site.zmq_address:
        environment[JOB_ADDRESS] = site.zmq_address
        environment[JOB_CONTACT] = site.contact
    if first.gpus or site.hides_gpus:
        environment.update(gpu_variables(first, site))
    if len(first.cores) > 1 or len(grant.parts) > 1:
        environment.update(open_mpi_variables(attempt_id, site))
    return environment


def open_mpi_variables(attempt_id: str, site: Site) -> dict[str, str]:
    """A place of its own for what Open MPI keeps on a node while it runs. Left to themselves, all `mpirun` of a user
    take the same, and those that begin or end at the same moment trip over each other."""
    return {"OMPI_MCA_orte_top_session_dir": f"/dev/shm/qcg-pm.{site.instance}.{attempt_id.replace(':', '-')}"}


def gpu_variables(part: NodePart, site: Site) -> dict[str, str]:
    """What processes on this node of a grant are told about GPUs."""
    if part.gpus:
        # Where Slurm shuts other devices out, CUDA counts those that are left.
        names = site.visible_gpus.get(part.node, {})
        visible = ",".join([names.get(gpu, gpu) for gpu in part.gpus])
        return {"CUDA_VISIBLE_DEVICES": visible, "QCG_PM_GPUS": ",".join(part.gpus)}
    return {"CUDA_VISIBLE_DEVICES": ""} if site.hides_gpus else {}


# The same cores are given again and again.
@lru_cache(maxsize=4096)
def _of_grant(grant: Grant, cpus: tuple[int, ...] | None, slurm: bool) -> dict[str, str]:
    """What follows from the cores alone."""
    nodes = ",".join([part.node for part in grant.parts])
    per_node = [len(part.cores) for part in grant.parts]
    cores = str(sum(per_node))
    environment = {
        "QCG_PM_CPU_SET": ",".join([str(cpu) for cpu in cpus or grant.parts[0].cores]),
        "QCG_PM_NNODES": str(len(per_node)),
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
        "SLURM_JOB_CPUS_PER_NODE": compressed,
        "SLURM_CPUS_ON_NODE": str(per_node[0]),
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_NODES": count,
        "SLURM_STEP_NUM_TASKS": cores,
        # A number: with a list, srun refuses to work. Where nodes have different numbers it is the most on any.
        "SLURM_NTASKS_PER_NODE": str(max(per_node)),
        "SLURM_STEP_TASKS_PER_NODE": compressed,
        "SLURM_TASKS_PER_NODE": compressed,
        # Steps of jobs share nodes with each other and with the agent, and none waits for another.
        "SLURM_OVERLAP": "1",
    }


def compress(numbers: list[int]) -> str:
    """`4(x2),2` for 4, 4, 2: the way Slurm writes numbers per node."""
    runs = [(number, len(list(group))) for number, group in groupby(numbers)]
    return ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in runs)
