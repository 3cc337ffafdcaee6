"""Questions to the controller of Slurm."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from qcg.pilotjob.cluster.errors import AllocationOver, ClusterError, NoAllocation

PATIENCE = 120.0
"""Seconds for the controller to answer: `scontrol` itself tries for about a minute."""


def scontrol(environ: Mapping[str, str], *arguments: str, patience: float = PATIENCE) -> str:
    command = ["scontrol", *arguments]
    shown = " ".join(command)[:200]
    try:
        answer = subprocess.run(
            command,
            # Seconds, whatever form of times the user likes.
            env={**environ, "SLURM_TIME_FORMAT": "%s"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
            check=False,
        )
    except FileNotFoundError:
        raise NoAllocation("there is no program scontrol on $PATH, so that Slurm cannot be asked") from None
    except OSError as error:
        raise ClusterError(f"`{shown}` could not be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"`{shown}` had no answer in {patience:g} s; is the controller of Slurm up?") from None
    if answer.returncode == 0:
        return answer.stdout
    said = (answer.stderr.strip() or answer.stdout.strip() or f"exit code {answer.returncode}")[-300:]
    if "Invalid job id" in said:
        raise AllocationOver(f"Slurm does not know job {arguments[-1]} (SLURM_JOB_ID)")
    raise ClusterError(f"`{shown}` failed: {said}")
