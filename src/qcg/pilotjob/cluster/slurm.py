"""The allocation that this process runs in, as Slurm itself tells."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.cluster.commands import PATIENCE
from qcg.pilotjob.cluster.errors import AllocationOver, ClusterError, NoAllocation
from qcg.pilotjob.cluster.fate import OVER
from qcg.pilotjob.cluster.node_lists import expand
from qcg.pilotjob.cluster.parse_slurm import JobRecord, NodeRecord, Part, parse_jobs, parse_shown_nodes
from qcg.pilotjob.cluster.scontrol import scontrol
from qcg.pilotjob.core.resources import NodeSpec


class Allocation(Struct, frozen=True):
    job_id: str
    specs: list[NodeSpec]
    """In Slurm's order. Cores are Slurm's own CPU ids: abstract ones, in the order of sockets, cores and threads."""
    cpus: dict[str, tuple[int, ...]]
    """All CPU ids that the allocation has on a node: the cores, and threads of them that jobs are not to use."""
    addresses: dict[str, str]
    """Of each node: where it is reached."""
    end: float | None
    """Epoch seconds, where there is a limit."""
    layouts: dict[str, tuple[int, int]] = {}
    """Of each node: its cores, and threads of each, as CPU ids count them."""


def job_id_of(environ: Mapping[str, str]) -> str | None:
    """The job that the environment speaks of."""
    return environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID") or None


def cluster_of(environ: Mapping[str, str]) -> str:
    """The name of the cluster that the job is on."""
    return environ.get("SLURM_CLUSTER_NAME", "")


def is_on_node(environ: Mapping[str, str]) -> bool:
    """Whether this process is on a node of the allocation, and ends with it: that of a `salloc` may be elsewhere."""
    node, nodes = environ.get("SLURMD_NODENAME"), environ.get("SLURM_JOB_NODELIST")
    return bool(node and nodes) and node in expand(nodes or "")


def find_allocation(environ: Mapping[str, str]) -> Allocation:
    """The allocation of the job that the environment speaks of."""
    job = _find_job(environ)
    return allocation_of(job, parse_shown_nodes(scontrol(environ, "show", "node", job.nodes)))


def allocation_of(job: JobRecord, nodes: list[NodeRecord]) -> Allocation:
    """What a job has, put together from what Slurm says of it and of its nodes."""
    if job.het_ids:
        raise ClusterError(
            f"job {job.id} is heterogeneous (jobs {job.het_ids}), and its parts cannot be used as one allocation;"
            " ask for one kind of nodes, or use this machine alone with --resources local"
        )
    shown = {node.name: node for node in nodes}
    given = {name: part for part in job.parts for name in expand(part.nodes)}
    names = expand(job.nodes)
    for name in names:
        if name not in shown or name not in given:
            raise ClusterError(
                f"Slurm does not tell what job {job.id} has on node {name}; see what"
                f" `scontrol show job -d {job.id}` and `scontrol show node {name}` say"
            )
    return Allocation(
        job_id=job.id,
        specs=[_spec(given[name], job, shown[name]) for name in names],
        cpus={name: given[name].cpus for name in names},
        addresses={name: shown[name].address for name in names},
        end=job.end,
        layouts={name: (shown[name].cores, shown[name].threads) for name in names},
    )


class NodeRange(Struct, frozen=True):
    """A contiguous part of the nodes of an allocation: positions `begin` to `end` - 1, counted from 0."""

    begin: int | None = None
    """None: from the first node on."""
    end: int | None = None
    """None: up to the last node."""

    def of(self, allocation: Allocation) -> Allocation:
        """The allocation reduced to these nodes."""
        if self.begin is None and self.end is None:
            return allocation
        count = len(allocation.specs)
        begin, end = self.begin or 0, count if self.end is None else self.end
        if not 0 <= begin < end <= count:
            raise ClusterError(
                f"--slurm-limit-nodes-range-begin {begin} and --slurm-limit-nodes-range-end {end} choose no part of the"
                f" {count} nodes of allocation {allocation.job_id}: 0 <= begin < end <= {count} must hold"
            )
        specs = allocation.specs[begin:end]
        return replace(
            allocation,
            specs=specs,
            cpus={spec.name: allocation.cpus[spec.name] for spec in specs},
            addresses={spec.name: allocation.addresses[spec.name] for spec in specs},
            layouts={spec.name: allocation.layouts[spec.name] for spec in specs},
        )


def find_end(environ: Mapping[str, str], patience: float) -> float | None:
    """When the allocation ends, as far as is known now: limits can be changed while it runs."""
    return _find_job(environ, patience).end


def _spec(part: Part, job: JobRecord, node: NodeRecord) -> NodeSpec:
    # Slurm gives whole cores, with all their threads, also to jobs that want fewer threads of each, and on nodes that
    # give only their cores.
    threads = 1 if 0 < node.cpus <= node.cores else node.threads
    threads = min(threads, job.threads or threads)
    cores = tuple(cpu for cpu in part.cpus if cpu % node.threads < threads)
    # Where Slurm does not share memory out, all of it is for everybody.
    return NodeSpec(node.name, cores, part.gpus, part.memory or node.memory)


def _find_job(environ: Mapping[str, str], patience: float = PATIENCE) -> JobRecord:
    job_id = job_id_of(environ)
    if job_id is None:
        raise NoAllocation("there is no allocation here: SLURM_JOB_ID is not set")
    if not job_id.isdecimal():
        raise NoAllocation(f"SLURM_JOB_ID is {job_id[:100]!r}, which is no number of a job")
    # Asked for one job of an array or of a heterogeneous job, Slurm may show its neighbours too.
    for job in parse_jobs(scontrol(environ, "show", "job", "-d", job_id, patience=patience)):
        if job.id == job_id:
            if job.state not in ("RUNNING", "CONFIGURING"):
                error = AllocationOver if job.state in OVER else NoAllocation
                raise error(f"job {job_id} (SLURM_JOB_ID) does not run: it is {job.state}")
            return job
    raise ClusterError(f"`scontrol show job -d {job_id}` does not show job {job_id}")
