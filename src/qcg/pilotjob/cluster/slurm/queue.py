"""Submits, follows and cancels jobs with `sbatch`, `scontrol` and `scancel`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from qcg.pilotjob.cluster.base import AllocationQueue, AllocationView, EndCause, Phase
from qcg.pilotjob.cluster.commands import COMMAND_TIMEOUT, call_for_queue
from qcg.pilotjob.cluster.errors import BatchError, UnknownAllocation
from qcg.pilotjob.cluster.slurm import options as sbatch_options
from qcg.pilotjob.cluster.slurm.scontrol import is_unknown_job
from qcg.pilotjob.cluster.slurm.sizes import largest_allocation
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.cluster.time_limits import time_limit
from qcg.pilotjob.core.resources import NodeSpec

LABEL = "Slurm"

PHASES = {
    "PENDING": Phase.WAITING,
    "CONFIGURING": Phase.STARTING,
    "RUNNING": Phase.RUNNING,
    "SUSPENDED": Phase.SUSPENDED,
    **dict.fromkeys(
        (
            *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
            "TIMEOUT",
        ),
        Phase.OVER,
    ),
}
"""States of jobs; all other states are transitions between these."""

END_CAUSES = {
    "BOOT_FAIL": EndCause.NODE_FAILED,
    "CANCELLED": EndCause.CANCELLED,
    "DEADLINE": EndCause.TIME_LIMIT,
    "NODE_FAIL": EndCause.NODE_FAILED,
    "PREEMPTED": EndCause.PREEMPTED,
    "TIMEOUT": EndCause.TIME_LIMIT,
}
"""Causes that the state of a job tells, once it is over."""

CAUSES_OF_REASONS = {
    "DeadLine": EndCause.TIME_LIMIT,
    "NodeDown": EndCause.NODE_FAILED,
    "Preempted": EndCause.PREEMPTED,
    "TimeLimit": EndCause.TIME_LIMIT,
}
"""Causes that the reason tells while the job is about to end."""

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
"""Pending reasons that do not go away when other jobs end, with their explanations."""

_STATE = re.compile(r"^ +JobState=(\S+) Reason=(\S+)", re.MULTILINE)
_HISTORY = re.compile(r"^ +Requeue=\d+ Restarts=(\d+) .*ExitCode=(\d+):(\d+)$", re.MULTILINE)
_OUTPUT = re.compile(r"^ +StdOut=(.*)$", re.MULTILINE)
_LIMIT = re.compile(r"^ +RunTime=\S+ TimeLimit=(\S+)", re.MULTILINE)
_NODES = re.compile(r"^ +NodeList=(\S*)", re.MULTILINE)


class SlurmQueue(AllocationQueue):
    """The queue of Slurm."""

    submit_program = "sbatch"
    qcg_pm_command = "sbatch"

    def options(self, spec: AllocationSpec, name: str, wd: Path) -> list[str]:
        return sbatch_options.options_of(spec, name, wd)

    def output_directory(self, output: str, wd: Path) -> Path | None:
        """None for a directory with a pattern such as `%j`."""
        return None if "%" in str(Path(output).parent) else super().output_directory(output, wd)

    def further_options(self, words: Iterable[str]) -> list[str]:
        return sbatch_options.further_options(words)

    def options_kept(self, earlier: Sequence[str], further: Sequence[str]) -> list[str]:
        return sbatch_options.options_kept(earlier, further)

    def directives(self, options: Sequence[str]) -> list[str]:
        return sbatch_options.directives(options)

    def command_environment(self, environ: Mapping[str, str], options: Iterable[str] = ()) -> dict[str, str]:
        return sbatch_options.environment(environ, options)

    def largest_allocation(self, options: Sequence[str], environ: Mapping[str, str]) -> list[NodeSpec]:
        return largest_allocation(options, largest_node(_partition(options), environ))

    def submit(self, script: Path, environ: Mapping[str, str], after: str = "") -> str:
        dependency = [f"--dependency=afterany:{after}"] if after else []
        answer = _call([self.submit_program, "--parsable", *dependency, str(script)], environ)
        job_id = answer.strip().splitlines()[-1].partition(";")[0] if answer.strip() else ""
        if not job_id.isdecimal():
            raise BatchError(f"sbatch did not tell the number of the job; it said {answer[:300]!r}")
        return job_id

    def view(
        self, allocation_id: str, environ: Mapping[str, str], patience: float = COMMAND_TIMEOUT
    ) -> AllocationView | None:
        try:
            return parse_job(allocation_id, _call(["scontrol", "show", "job", allocation_id], environ, patience))
        except UnknownAllocation:
            return None

    def cancel(self, allocation_id: str, environ: Mapping[str, str]) -> None:
        with suppress(UnknownAllocation):
            _call(["scancel", allocation_id], environ)

    def cancel_command(self, *allocation_ids: str) -> str:
        return " ".join(["scancel", *allocation_ids])


def parse_job(job_id: str, shown: str) -> AllocationView:
    """A job in the output of `scontrol show job`."""
    forms = (_STATE, _HISTORY, _OUTPUT, _NODES, _LIMIT)
    state, history, output, nodes, limit = (form.search(shown) for form in forms)
    if state is None or history is None:
        raise BatchError(f"`scontrol show job {job_id}` does not tell how the job is")
    return AllocationView(
        id=job_id,
        phase=PHASES.get(state[1], Phase.ENDING),
        state=state[1],
        reason="" if state[2] == "None" else state[2],
        requeue_count=int(history[1]),
        exit_code=128 + int(history[3]) if int(history[3]) else int(history[2]),
        output="" if output is None else output[1],
        nodes="" if nodes is None or nodes[1] == "(null)" else nodes[1],
        limit=None if limit is None else limit_seconds(limit[1]),
        end_cause=end_cause(state[1], state[2]),
        blocked=_blocked(job_id, state[1], state[2]),
    )


def limit_seconds(text: str) -> float | None:
    """A value of `TimeLimit=` in seconds; None for `UNLIMITED`, and for words such as `Partition_Limit`."""
    try:
        minutes = time_limit(text)
    except BatchError:
        return None
    return None if minutes is None else 60.0 * minutes


def end_cause(state: str, reason: str) -> EndCause:
    """Why Slurm ends a job, from its state and reason. A running job that gets SIGTERM without a reason was cancelled:
    Slurm writes down the time limit or the failed node before it signals."""
    phase = PHASES.get(state, Phase.ENDING)
    if phase is Phase.OVER:
        return END_CAUSES.get(state, EndCause.UNKNOWN)
    if phase is not Phase.WAITING and reason == "None":
        return EndCause.CANCELLED
    return CAUSES_OF_REASONS.get(reason, EndCause.UNKNOWN)


def largest_node(partition: str | None, environ: Mapping[str, str]) -> tuple[int, int] | None:
    """CPUs and MiB of the largest node of a partition, or of all; None where Slurm does not answer."""
    chosen = [f"--partition={partition}"] if partition else []
    try:
        shown = _call(["sinfo", "--noheader", "--Node", *chosen, "--format=%c %m"], environ)
    except BatchError:
        return None
    sizes = [tuple(map(int, line.split())) for line in shown.splitlines() if re.fullmatch(r"\d+ \d+", line.strip())]
    return (max(size[0] for size in sizes), max(size[1] for size in sizes)) if sizes else None


def _partition(options: Sequence[str]) -> str | None:
    return next((option.partition("=")[2] for option in options if option.startswith("--partition=")), None)


def _blocked(job_id: str, state: str, reason: str) -> str:
    if state != "PENDING" or reason not in UNCHANGING:
        return ""
    return (
        f"It will not start unless that changes: {UNCHANGING[reason]}. To give it up, `scancel {job_id}`;"
        " then submit anew with other options."
    )


def _call(command: Sequence[str], environ: Mapping[str, str], patience: float = COMMAND_TIMEOUT) -> str:
    return call_for_queue(command, environ, patience, label=LABEL, is_unknown=is_unknown_job)
