"""The resume hint shown when a run ends with unfinished jobs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from qcg.pilotjob.cluster.registry import submit_command
from qcg.pilotjob.common.environment import HAS_NEXT_ALLOCATION
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.common.wording import pluralize


def jobs_left_text(jobs: int) -> str:
    """`3 jobs are left`."""
    return f"{pluralize(jobs, 'job is', 'jobs are')} left"


def resume_command(
    run_dir: Path, allocation: str, batch_system: str = "", *, serves: bool = False, release: bool = False
) -> str:
    """The commands that resume a run. `allocation`: the allocation that it used, of `batch_system`. `serves`: its
    manager served clients until `qcg-pm finish`. `release`: nothing starts before held jobs are released."""
    path = shlex.quote(str(run_dir))
    if serves:
        here = f"`qcg-pm-service --net --resume {path}`"
    else:
        path += " --release" if release else ""
        here = f"`qcg-pm run --resume {path}`"
    return f"`{submit_command(batch_system)} --resume {path}` (inside an allocation: {here})" if allocation else here


def has_next_allocation() -> bool:
    """Whether another allocation continues the run. Removes the variable, so that child processes do not see it."""
    return bool(os.environ.pop(HAS_NEXT_ALLOCATION, ""))


def refuse_outside_allocation(run_dir: Path, allocation: str, batch_system: str = "") -> None:
    """Refuse to resume a run of an allocation on this machine, unless `--resources local` is given."""
    raise UsageError(
        f"this run was in allocation {allocation}, and this is no allocation: continue with"
        f" {resume_command(run_dir, allocation, batch_system)}, or give --resources local if you mean this machine"
    )
