"""The resume hint shown when a run ends with unfinished jobs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from qcg.pilotjob.cluster.registry import submit_command
from qcg.pilotjob.common.environment import HAS_NEXT_ALLOCATION
from qcg.pilotjob.common.options import UsageError


def are_left(jobs: int) -> str:
    return "1 job is left" if jobs == 1 else f"{jobs} jobs are left"


def how_to_go_on(run_dir: Path, allocation: str, batch_system: str = "", *, serves: bool = False) -> str:
    """The commands that continue a run. `allocation`: the allocation whose nodes it had, and the name of its batch
    system. `serves`: its manager served clients until it was told to finish."""
    path = shlex.quote(str(run_dir))
    here = f"`qcg-pm-service --net --resume {path}`" if serves else f"`qcg-pm run --resume {path}`"
    return f"`{submit_command(batch_system)} --resume {path}` (inside an allocation: {here})" if allocation else here


def is_followed() -> bool:
    """Whether another allocation continues the run. Removes the variable, so that child processes do not see it."""
    return bool(os.environ.pop(HAS_NEXT_ALLOCATION, ""))


def refuse_elsewhere(run_dir: Path, allocation: str, batch_system: str = "") -> None:
    """Of a run that has had nodes of an allocation, and would go on with this machine though nobody has said so."""
    raise UsageError(
        f"this run was in allocation {allocation}, and this is no allocation: go on with"
        f" {how_to_go_on(run_dir, allocation, batch_system)}, or give --resources local if you mean this machine"
    )
