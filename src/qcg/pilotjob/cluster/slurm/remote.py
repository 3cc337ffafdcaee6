"""Slurm on a remote host, as data."""

from __future__ import annotations

from qcg.pilotjob.cluster.base import EndCause, Phase
from qcg.pilotjob.cluster.remote_queue import Cause, RemoteQueue
from qcg.pilotjob.cluster.slurm.options import VARIABLES
from qcg.pilotjob.cluster.slurm.queue import END_CAUSES, LABEL, PHASES

_CAUSES = {
    EndCause.CANCELLED: Cause.CANCELLED,
    EndCause.TIME_LIMIT: Cause.TIME_LIMIT,
    EndCause.NODE_FAILED: Cause.NODE_FAILED,
    EndCause.PREEMPTED: Cause.PREEMPTED,
}
_OVER = {state: Cause.NONE for state, phase in PHASES.items() if phase is Phase.OVER}
_OVER |= {state: _CAUSES[cause] for state, cause in END_CAUSES.items()}
_OVER["OUT_OF_MEMORY"] = Cause.MEMORY
_OVER["REVOKED"] = Cause.CANCELLED

_SQUEUE = ["squeue", "--noheader", "--all", "--states=all", "--format=%i|%T|%j"]
"""Lists jobs in hidden partitions too, and jobs that ended a few minutes ago."""


def remote_queue(name: str) -> RemoteQueue:
    """Slurm's commands. `name`: that of the batch system."""
    return RemoteQueue(
        name=name,
        label=LABEL,
        submit=["sbatch", "--parsable", "--chdir={directory}", "{script}"],
        submitted=r"^(?P<id>\d+)(;.*)?$",
        prefix="#SBATCH ",
        directives=[
            "--job-name={name}",
            "--output={output}",
            "--error={error}",
            "--open-mode=append",
            # A second start of the same attempt would be refused, so it must not wait in the queue for one.
            "--no-requeue",
            "--nodes={nodes}",
            "--ntasks-per-node={cores}",
            "--exclusive{whole_nodes}",
            "--gpus-per-node={gpus}",
            "--mem={memory}M",
            "--time={minutes}",
        ],
        reserved=[
            "--job-name",
            "-J",
            "--array",
            "-a",
            "--wrap",
            "--requeue",
            "--wait",
            "-W",
            "--test-only",
            "--clusters",
            "-M",
        ],
        variables={**VARIABLES, "--error": "SBATCH_ERROR", "--open-mode": "SBATCH_OPEN_MODE"},
        list_jobs=[*_SQUEUE, "--jobs={ids}"],
        find_jobs=[
            "squeue",
            "--noheader",
            "--all",
            "--states=all",
            "--format=%i|%T|%j",
            "--user={user}",
            "--name={names}",
        ],
        job_line=r"^ *(?P<id>\d+)\|(?P<state>[A-Z_]+)\|(?P<name>.*)$",
        waiting=["PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"],
        over=_OVER,
        unknown="Invalid job id",
        unreachable=(
            "Unable to contact slurm controller|Socket timed out|Connection refused|Connection timed out"
            "|Transport endpoint is not connected|Zero Bytes were transmitted|temporarily unable|Resource temporarily"
            "|in standby mode|Communication connection failure|Message receive failure|Message send failure"
        ),
        list_ended=["sacct", "--noheader", "--parsable2", "--allocations", "--format=JobIDRaw,State", "--jobs={ids}"],
        ended_line=r"^(?P<id>\d+)\|(?P<state>[A-Z_]+)",
        kill=["scancel", "{ids}"],
        signal=["scancel", "--batch", "--signal={signal}", "{ids}"],
        id_variable="SLURM_JOB_ID",
        hide=["SLURM*"],
        keep=["SLURM_CONF"],
    )
