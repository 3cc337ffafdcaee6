"""Runs commands of a batch system."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence

from qcg.pilotjob.cluster.errors import BatchError, ClusterError, CommandFailed, NoCommand, UnknownAllocation

COMMAND_TIMEOUT = 120.0
"""Seconds for a command to answer: commands of batch systems try for about a minute to reach the controller."""
LONGEST_MESSAGE = 600
"""Characters of an error message that are passed on."""


def call(command: Sequence[str], environ: Mapping[str, str], patience: float = COMMAND_TIMEOUT) -> str:
    """Run a command and return its standard output.

    Raises: `NoCommand`, `CommandFailed`, or `ClusterError` when it does not start or answer in time.
    """
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
        raise NoCommand(f"{command[0]} is not on $PATH") from None
    except OSError as error:
        raise ClusterError(f"`{shown}` could not be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"`{shown}` had no answer in {patience:g} s; check that the batch system is up") from None
    if answer.returncode:
        said = answer.stderr.strip() or answer.stdout.strip() or f"exit code {answer.returncode}"
        raise CommandFailed(shown, _in_one_line(said))
    return answer.stdout


def call_for_queue(
    command: Sequence[str],
    environ: Mapping[str, str],
    patience: float = COMMAND_TIMEOUT,
    *,
    label: str,
    is_unknown: Callable[[CommandFailed], bool] = lambda failure: False,
) -> str:
    """Run a command for a method of `AllocationQueue`, and return its standard output.

    `label`: the batch system in messages. `is_unknown`: whether a failure says that there is no such allocation.

    Raises: `BatchError` for every error; `UnknownAllocation` for those that `is_unknown` recognizes.
    """
    try:
        return call(command, environ, patience)
    except NoCommand as error:
        raise BatchError(f"{error}; on a machine without {label}, `qcg-pm run` runs the jobs right here") from None
    except CommandFailed as failure:
        refusal = UnknownAllocation if is_unknown(failure) else BatchError
        raise refusal(f"{command[0]} refused: {failure.said}") from None
    except ClusterError as error:
        raise BatchError(str(error)) from None


def _in_one_line(said: str) -> str:
    lines = [" ".join(line.split()) for line in said.splitlines()]
    return "; ".join(line for line in lines if line)[:LONGEST_MESSAGE]
