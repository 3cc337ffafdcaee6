"""Finds the Slurm allocation that this process runs in."""

from __future__ import annotations

from collections.abc import Mapping

from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import Allocation
from qcg.pilotjob.cluster.commands import COMMAND_TIMEOUT
from qcg.pilotjob.cluster.errors import AllocationOver, ClusterError, NoAllocation
from qcg.pilotjob.cluster.slurm.node_lists import expand
from qcg.pilotjob.cluster.slurm.parse import JobRecord, NodeRecord, NodeShare, parse_jobs, parse_shown_nodes
from qcg.pilotjob.cluster.slurm.scontrol import OVER, scontrol
from qcg.pilotjob.core.resources import NodeSpec

NAME = "slurm"


def job_id_of(environ: Mapping[str, str]) -> str | None:
    """The job id that the environment names."""
    return environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID") or None


def allocation_ref(environ: Mapping[str, str]) -> AllocationRef | None:
    """The allocation that the environment names."""
    job_id = job_id_of(environ)
    return None if job_id is None else AllocationRef(job_id, environ.get("SLURM_CLUSTER_NAME", ""), NAME)


def is_on_node(environ: Mapping[str, str]) -> bool:
    """Whether this process is on a node of the allocation, and ends with it: `salloc` may run elsewhere."""
    node, nodes = environ.get("SLURMD_NODENAME"), environ.get("SLURM_JOB_NODELIST")
    return bool(node and nodes) and node in expand(nodes or "")


def find_allocation(environ: Mapping[str, str]) -> Allocation:
    """The allocation of the job that the environment names."""
    job = _find_job(environ)
    nodes = parse_shown_nodes(scontrol(environ, "show", "node", job.nodes))
    return allocation_of(job, nodes, environ.get("SLURM_CLUSTER_NAME", ""))


def allocation_of(job: JobRecord, nodes: list[NodeRecord], cluster: str = "") -> Allocation:
    """The allocation that a job record and the records of its nodes describe.

    Core ids are Slurm's abstract CPU ids, in the order of sockets, cores and threads.
    """
    if job.het_ids:
        raise ClusterError(
            f"job {job.id} is heterogeneous (jobs {job.het_ids}), and its parts cannot be used as one allocation;"
            " ask for one kind of nodes"
        )
    shown = {node.name: node for node in nodes}
    given = {name: share for share in job.shares for name in expand(share.nodes)}
    names = expand(job.nodes)
    for name in names:
        if name not in shown or name not in given:
            raise ClusterError(
                f"Slurm does not tell what job {job.id} has on node {name}; see what"
                f" `scontrol show job -d {job.id}` and `scontrol show node {name}` say"
            )
    return Allocation(
        ref=AllocationRef(job.id, cluster, NAME),
        specs=[_spec(given[name], job, shown[name]) for name in names],
        cpus={name: given[name].cpus for name in names},
        addresses={name: shown[name].address for name in names},
        end=job.end,
        layouts={name: (shown[name].cores, shown[name].threads) for name in names},
    )


def end_time(environ: Mapping[str, str], patience: float) -> float | None:
    """When the allocation ends, as far as is known now: limits can be changed while it runs."""
    return _find_job(environ, patience).end


def _spec(share: NodeShare, job: JobRecord, node: NodeRecord) -> NodeSpec:
    # Slurm gives whole cores with all their threads, even to jobs that asked for fewer threads per core, and on nodes
    # where only cores are counted.
    threads = 1 if 0 < node.cpus <= node.cores else node.threads
    threads = min(threads, job.threads or threads)
    cores = tuple(cpu for cpu in share.cpus if cpu % node.threads < threads)
    # Where Slurm does not manage memory, jobs may use all of it.
    return NodeSpec(node.name, cores, share.gpus, share.memory or node.memory)


def _find_job(environ: Mapping[str, str], patience: float = COMMAND_TIMEOUT) -> JobRecord:
    job_id = job_id_of(environ)
    if job_id is None:
        raise NoAllocation("there is no allocation here: SLURM_JOB_ID is not set")
    if not job_id.isdecimal():
        raise NoAllocation(f"SLURM_JOB_ID is {job_id[:100]!r}, which is no number of a job")
    # For one job of an array or of a heterogeneous job, Slurm may show the other jobs too.
    for job in parse_jobs(scontrol(environ, "show", "job", "-d", job_id, patience=patience)):
        if job.id == job_id:
            if job.state not in ("RUNNING", "CONFIGURING"):
                error = AllocationOver if job.state in OVER else ClusterError
                raise error(f"job {job_id} (SLURM_JOB_ID) does not run: it is {job.state}")
            return job
    raise ClusterError(f"`scontrol show job -d {job_id}` does not show job {job_id}")
