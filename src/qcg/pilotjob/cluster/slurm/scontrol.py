"""Runs `scontrol`, and asks it for the state of an allocation."""

from __future__ import annotations

from collections.abc import Mapping

from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import AllocationState
from qcg.pilotjob.cluster.commands import COMMAND_TIMEOUT, call
from qcg.pilotjob.cluster.errors import AllocationOver, ClusterError, CommandFailed
from qcg.pilotjob.cluster.slurm.parse import parse_cluster_name, parse_jobs

OVER = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
    # Queued again: its processes have ended.
    *("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
)
"""States in which nothing of the job runs."""


def scontrol(environ: Mapping[str, str], *arguments: str, patience: float = COMMAND_TIMEOUT) -> str:
    """The output of `scontrol`, with times in epoch seconds."""
    seconds = {**environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        return call(["scontrol", *arguments], seconds, patience)
    except CommandFailed as failure:
        if is_unknown_job(failure):
            raise AllocationOver(f"Slurm does not know job {arguments[-1]} (SLURM_JOB_ID)") from None
        raise


def is_unknown_job(failure: CommandFailed) -> bool:
    """Whether a command was asked about a job that Slurm has never known, or has forgotten."""
    return "Invalid job id" in failure.said


def state_of(allocation: AllocationRef, environ: Mapping[str, str]) -> AllocationState:
    """Ask the controller of the allocation's cluster, and no other: only there an unknown job is a job that is over."""
    try:
        here = parse_cluster_name(scontrol(environ, "show", "config"))
    except ClusterError as error:
        raise _not_known(allocation, str(error)) from None
    if not allocation.cluster or here != allocation.cluster:
        raise _not_known(allocation, f"Slurm here is that of cluster {here or 'without a name'}")
    try:
        jobs = parse_jobs(scontrol(environ, "show", "job", allocation.id))
    except AllocationOver:
        return AllocationState.OVER
    except ClusterError as error:
        raise _not_known(allocation, str(error)) from None
    for job in jobs:
        if job.id == allocation.id:
            if job.state in OVER:
                return AllocationState.OVER
            return AllocationState.ENDING if job.state == "COMPLETING" else AllocationState.ACTIVE
    raise _not_known(allocation, f"`scontrol show job {allocation.id}` does not show it")


def _not_known(allocation: AllocationRef, why: str) -> ClusterError:
    where = f"cluster {allocation.cluster}" if allocation.cluster else "its cluster"
    return ClusterError(f"it is not known whether allocation {allocation.id} is over: {why}; ask on a host of {where}")
