"""Runs commands of a batch system."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from qcg.pilotjob.cluster.errors import ClusterError, CommandFailed, NoCommand

PATIENCE = 120.0
"""Seconds for a command to answer: commands of batch systems try for about a minute to reach the controller."""
LONGEST_MESSAGE = 600
"""Characters of an error message that are passed on."""


def call(command: Sequence[str], environ: Mapping[str, str], patience: float = PATIENCE) -> str:
    """Run a command and return its standard output. Raises ClusterError."""
    shown = " ".join(command)[:200]
    try:
        answer = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
            check=False,
        )
    except FileNotFoundError:
        raise NoCommand(f"there is no program {command[0]} on $PATH") from None
    except OSError as error:
        raise ClusterError(f"`{shown}` could not be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"`{shown}` had no answer in {patience:g} s; is the batch system up?") from None
    if answer.returncode:
        said = answer.stderr.strip() or answer.stdout.strip() or f"exit code {answer.returncode}"
        raise CommandFailed(shown, _in_one_line(said))
    return answer.stdout


def _in_one_line(said: str) -> str:
    lines = [" ".join(line.split()) for line in said.splitlines()]
    return "; ".join(line for line in lines if line)[:LONGEST_MESSAGE]
