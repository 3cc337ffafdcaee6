"""What has become of an allocation that another process was in."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from qcg.pilotjob.cluster.errors import AllocationOver, ClusterError
from qcg.pilotjob.cluster.parse_slurm import parse_cluster_name, parse_jobs
from qcg.pilotjob.cluster.scontrol import scontrol

OVER = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
    # Queued again: its earlier life is over.
    *("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
)


class Fate(Enum):
    AT_WORK = auto()
    ENDING = auto()
    """Slurm is about to end what runs on its nodes."""
    OVER = auto()


def fate_of(job_id: str, cluster: str, environ: Mapping[str, str]) -> Fate:
    """Asked of that cluster and of no other: only where a job was does it mean anything that nobody knows it."""
    try:
        here = parse_cluster_name(scontrol(environ, "show", "config"))
    except ClusterError as error:
        raise _cannot_tell(job_id, cluster, str(error)) from None
    if not cluster or here != cluster:
        raise _cannot_tell(job_id, cluster, f"Slurm here is that of cluster {here or 'without a name'}")
    try:
        jobs = parse_jobs(scontrol(environ, "show", "job", job_id))
    except AllocationOver:
        return Fate.OVER
    except ClusterError as error:
        raise _cannot_tell(job_id, cluster, str(error)) from None
    for job in jobs:
        if job.id == job_id:
            return Fate.OVER if job.state in OVER else Fate.ENDING if job.state == "COMPLETING" else Fate.AT_WORK
    raise _cannot_tell(job_id, cluster, f"`scontrol show job {job_id}` does not show it")


def _cannot_tell(job_id: str, cluster: str, why: str) -> ClusterError:
    where = f"cluster {cluster}" if cluster else "its cluster"
    return ClusterError(f"it cannot be told whether allocation {job_id} is over: {why}; ask on a host of {where}")
