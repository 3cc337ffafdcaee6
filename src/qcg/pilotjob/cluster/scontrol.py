"""Questions to the controller of Slurm."""

from __future__ import annotations

from collections.abc import Mapping

from qcg.pilotjob.cluster.commands import PATIENCE, call
from qcg.pilotjob.cluster.errors import AllocationOver, CommandFailed, NoAllocation, NoCommand


def scontrol(environ: Mapping[str, str], *arguments: str, patience: float = PATIENCE) -> str:
    # Times in seconds, whatever form the user likes.
    seconds = {**environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        return call(["scontrol", *arguments], seconds, patience)
    except NoCommand as error:
        raise NoAllocation(f"{error}, so that Slurm cannot be asked") from None
    except CommandFailed as failure:
        if failure.knows_no_job:
            raise AllocationOver(f"Slurm does not know job {arguments[-1]} (SLURM_JOB_ID)") from None
        raise
