"""Reaps children and reads their resource usage."""

import contextlib
import os
import signal
from typing import Any, Mapping

from qcg.pilotjob.host import process_tree
from qcg.pilotjob.host.job import ActiveJob
from qcg.pilotjob.host.records import EndReason
from qcg.pilotjob.host.usage import added, usage_of


def ended_child() -> Any:
    """The result of `waitid` for a child that has ended and stays to be reaped; None without one."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None


def reap_first_process(pid: int, job: ActiveJob) -> None:
    """Reap the first process of a job. Without an order to end the job, remaining processes in its group are killed."""
    if job.reason == EndReason.EXIT:
        # While the dead leader is not reaped, its process group can be no other.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    job.usage = added(usage_of(os.wait4(pid, 0)[2]), job.usage)


def reap_orphan(pid: int, jobs: Mapping[int, ActiveJob]) -> None:
    """Reap a process whose parent has ended. It counts for the job whose session it has not left.

    `jobs`: the jobs whose first process runs, by its pid."""
    orphan = process_tree.read_process(pid)
    usage = usage_of(os.wait4(pid, 0)[2])
    job = None if orphan is None else jobs.get(orphan.session)
    if job is not None:
        job.usage = added(usage, job.usage)
