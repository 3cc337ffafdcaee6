"""Gives up a remote host in a run that has no manager at the moment."""

from __future__ import annotations

from pathlib import Path

from qcg.pilotjob.cli.errors import Denial
from qcg.pilotjob.executors.ssh.marker import FORGOTTEN, HostMarker, read_states
from qcg.pilotjob.runs.discovery import RunsError, newest_readable_run
from qcg.pilotjob.runs.manager_process import has_manager, registry_holder


def forget_in_run(name: str, path: Path) -> None:
    """Mark a host of the run in this directory as given up. Raises Denial."""
    try:
        run_dir = newest_readable_run(path)
    except RunsError as error:
        raise Denial(str(error).rstrip(".")) from None
    state = read_states(run_dir).get(name)
    if has_manager(run_dir) or registry_holder(run_dir) is not None:
        raise Denial(f"the manager of {run_dir.name} is at work and does not answer; nothing was changed")
    if state is None or not state.may_have_attempts:
        raise Denial(f"{run_dir.name} has no jobs on a host {name!r} whose ends are not known; nothing was changed")
    try:
        HostMarker(run_dir, name, state).set(FORGOTTEN)
    except OSError as error:
        raise Denial(f"{run_dir.name}: the state of {name} cannot be written: {error.strerror}") from None
