"""Calls of `sbatch`, `scancel` and `scontrol`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from qcg.pilotjob.cluster.commands import PATIENCE, call
from qcg.pilotjob.cluster.errors import BatchError, ClusterError, CommandFailed, NoCommand, NoSuchJob

OVER = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
)

UNCHANGING = {
    "AccountNotAllowed": "this account may not use that partition",
    "BadConstraints": "no nodes are as --constraint asks for",
    "DependencyNeverSatisfied": "what it waits for has ended otherwise",
    "InvalidAccount": "there is no such account",
    "InvalidQOS": "there is no such quality of service",
    "JobHeldAdmin": "the administrator holds it",
    "JobHeldUser": "it is held until `scontrol release`",
    "PartitionConfig": "the partition does not give so many nodes, or such ones",
    "PartitionNodeLimit": "the partition does not give so many nodes, or some of them are down",
    "PartitionTimeLimit": "the partition does not give so much time",
    "QOSNotAllowed": "this quality of service may not use that partition",
}
"""Reasons to wait that do not go away when other jobs end, in words."""

_STATE = re.compile(r"^ +JobState=(\S+) Reason=(\S+)", re.MULTILINE)
_HISTORY = re.compile(r"^ +Requeue=\d+ Restarts=(\d+) .*ExitCode=(\d+):(\d+)$", re.MULTILINE)
_OUTPUT = re.compile(r"^ +StdOut=(.*)$", re.MULTILINE)
_LIMIT = re.compile(r"^ +RunTime=\S+ TimeLimit=(\S+)", re.MULTILINE)
_NODES = re.compile(r"^ +NodeList=(\S*)", re.MULTILINE)


class JobView(Struct, frozen=True):
    """What Slurm says of a job."""

    id: str
    state: str
    reason: str
    """Why it waits, or why it was ended: `TimeLimit`."""
    restarts: int
    """How often it was queued again."""
    exit_code: int
    output: str
    nodes: str
    limit: str = ""
    """Of its time, as Slurm writes it."""

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    def __str__(self) -> str:
        where = f" on {self.nodes}" if self.nodes and self.state == "RUNNING" else ""
        why = f" ({self.reason})" if self.reason != "None" else ""
        return f"Job {self.id} is {self.state}{where}{why}."

    @property
    def hopeless(self) -> str:
        """A sentence when it waits for something that does not come by itself."""
        if self.state != "PENDING" or self.reason not in UNCHANGING:
            return ""
        return (
            f"It will not start unless that changes: {UNCHANGING[self.reason]}. To give it up, `scancel {self.id}`;"
            " then submit anew with other options."
        )


def submit(script: Path, environ: Mapping[str, str], *options: str) -> str:
    """The id of the job that has been made of a script."""
    answer = _call(["sbatch", "--parsable", *options, str(script)], environ)
    job_id = answer.strip().splitlines()[-1].partition(";")[0] if answer.strip() else ""
    if not job_id.isdecimal():
        raise BatchError(f"sbatch did not tell the number of the job; it said {answer[:300]!r}")
    return job_id


def cancel(job_id: str, environ: Mapping[str, str]) -> None:
    _call(["scancel", job_id], environ)


def look(job_id: str, environ: Mapping[str, str], patience: float = PATIENCE) -> JobView | None:
    """None: Slurm has forgotten the job, so that it ended some time ago."""
    try:
        return parse_job(job_id, _call(["scontrol", "show", "job", job_id], environ, patience))
    except NoSuchJob:
        return None


def parse_job(job_id: str, shown: str) -> JobView:
    forms = (_STATE, _HISTORY, _OUTPUT, _NODES, _LIMIT)
    state, history, output, nodes, limit = (form.search(shown) for form in forms)
    if state is None or history is None:
        raise BatchError(f"`scontrol show job {job_id}` does not tell how the job is")
    return JobView(
        id=job_id,
        state=state[1],
        reason=state[2],
        restarts=int(history[1]),
        exit_code=128 + int(history[3]) if int(history[3]) else int(history[2]),
        output="" if output is None else output[1],
        nodes="" if nodes is None or nodes[1] == "(null)" else nodes[1],
        limit="" if limit is None else limit[1],
    )


def _call(command: Sequence[str], environ: Mapping[str, str], patience: float = PATIENCE) -> str:
    try:
        return call(command, environ, patience)
    except NoCommand as error:
        raise BatchError(f"{error}; on a machine without Slurm, `qcg-pm run` runs the jobs right here") from None
    except CommandFailed as failure:
        refusal = NoSuchJob if failure.knows_no_job else BatchError
        raise refusal(f"{command[0]} refused: {failure.said}") from None
    except ClusterError as error:
        raise BatchError(str(error)) from None


def largest_node(partition: str | None, environ: Mapping[str, str]) -> tuple[int, int] | None:
    """CPUs and MiB of the largest node; None where Slurm does not tell."""
    chosen = [f"--partition={partition}"] if partition else []
    try:
        shown = _call(["sinfo", "--noheader", "--Node", *chosen, "--format=%c %m"], environ)
    except BatchError:
        return None
    sizes = [tuple(map(int, line.split())) for line in shown.splitlines() if re.fullmatch(r"\d+ \d+", line.strip())]
    return (max(size[0] for size in sizes), max(size[1] for size in sizes)) if sizes else None


VARIABLES = {
    "--account": "SBATCH_ACCOUNT",
    "--exclusive": "SBATCH_EXCLUSIVE",
    "--gpus-per-node": "SBATCH_GPUS_PER_NODE",
    "--gres": "SBATCH_GRES",
    "--job-name": "SBATCH_JOB_NAME",
    "--mem": "SBATCH_MEM_PER_NODE",
    "--no-kill": "SBATCH_NO_KILL",
    "--output": "SBATCH_OUTPUT",
    "--partition": "SBATCH_PARTITION",
    "--qos": "SBATCH_QOS",
    "--requeue": "SBATCH_NO_REQUEUE",
    "--time": "SBATCH_TIMELIMIT",
}
"""Environment variables that override an option of a batch script."""


def environment_for(options: Iterable[str], environ: dict[str, str]) -> dict[str, str]:
    """The environment for `sbatch`: without variables of this allocation or ones that override `options`."""
    overruled = {VARIABLES.get(option.partition("=")[0]) for option in options}
    return {
        name: value
        for name, value in environ.items()
        if name not in overruled and (not name.startswith("SLURM") or name == "SLURM_CONF")
    }
