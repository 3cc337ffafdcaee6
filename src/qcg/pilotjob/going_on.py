"""How to go on with a run that has jobs left, as its user is told."""

from __future__ import annotations

import os
from pathlib import Path

from qcg.pilotjob.options import UsageError

FOLLOWED = "QCG_PM_FOLLOWED"
"""Of the environment of a manager: set where another allocation has been asked for, which goes on with what is left."""
ALLOCATION = "nodes_of_allocation"
"""In the registry: the Slurm job whose nodes the latest manager had; empty without."""


def how_to_go_on(run_dir: Path, allocation: str) -> str:
    """`allocation`: that the run has had nodes of."""
    here = f"`qcg-pm run --resume {run_dir}`"
    return f"`qcg-pm sbatch --resume {run_dir}` (inside an allocation: {here})" if allocation else here


def is_followed() -> bool:
    """Asked once: programs that this process starts are not meant."""
    return bool(os.environ.pop(FOLLOWED, ""))


def refuse_elsewhere(run_dir: Path, allocation: str) -> None:
    """Of a run that has had nodes of an allocation, and would go on with this machine though nobody has said so."""
    raise UsageError(
        f"this run was in Slurm allocation {allocation}, and this is no allocation: go on with"
        f" {how_to_go_on(run_dir, allocation)}, or give --resources local if you mean this machine"
    )
