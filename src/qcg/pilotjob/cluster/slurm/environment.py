"""The variables of Slurm that jobs see, and variables that are hidden from them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from qcg.pilotjob.launch.site import EnvironmentSchema

NODE_VARIABLE = "SLURMD_NODENAME"
"""The variable with which Slurm tells processes the name of their node."""

NOT_FOR_JOBS = [
    # The step of the agent: an MPI program that finds these variables would join that step.
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
    # Options of that step or of the allocation: `srun` in a job would use them as its own options.
    "SLURM_CPU_BIND*",
    "SLURM_MEM_BIND*",
    "SLURM_DISTRIBUTION",
    "SLURM_NTASKS_PER_*",
    "SLURM_CPUS_PER_TASK",
    "SLURM_TRES_PER_TASK",
    "SLURM_EXACT",
    # The resources of the allocation, of which the job has a part.
    "SLURM_JOB_CPUS_PER_NODE*",
    "SLURM_GPU*",
    "SLURM_JOB_GPUS",
    # CUDA_VISIBLE_DEVICES is enough for all kinds of GPUs; a second list would choose among those of the first.
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
]
"""Variables of an agent in an allocation that would mislead its jobs."""

_OF_USERS = frozenset({"SLURM_CONF"})
"""Set by users and sites, not by an allocation."""


def hidden_outside_allocation(names: Iterable[str]) -> list[str]:
    """The variables among `names` that come from an allocation, or from a step in it.

    They are hidden from jobs of a manager that does not use the allocation it runs in: `mpirun` would take its slots
    from the allocation, and an MPI program would take itself for a part of the step.
    """
    of_slurm = [name for name in names if name.startswith("SLURM") and name not in _OF_USERS]
    return [*sorted(of_slurm), "PMI_*", "PMI2_*", "PMIX_*"]


def variables_of_grant(nodes: str, per_node: list[int]) -> dict[str, str]:
    """The variables that Slurm would set in an allocation with this grant, for `srun` and `mpirun` in the job too.

    `nodes`: the names of the nodes, separated by commas. `per_node`: the number of cores on each of them.
    """
    count, cores = str(len(per_node)), str(sum(per_node))
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
        # A number: with a list, srun refuses to work. Where nodes have different numbers it is the largest.
        "SLURM_NTASKS_PER_NODE": str(max(per_node)),
        "SLURM_STEP_TASKS_PER_NODE": compressed,
        "SLURM_TASKS_PER_NODE": compressed,
        # Steps of jobs share nodes with each other and with the agent, and none waits for another.
        "SLURM_OVERLAP": "1",
    }


def compress(numbers: list[int]) -> str:
    """`4(x2),2` for 4, 4, 2: the form in which Slurm writes numbers per node."""
    groups = [(number, len(list(group))) for number, group in groupby(numbers)]
    return ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in groups)


SCHEMA = EnvironmentSchema(
    variables=variables_of_grant,
    machine_file="SLURM_HOSTFILE",
    allocation=("SLURM_JOB_ID", "SLURM_JOBID"),
)
