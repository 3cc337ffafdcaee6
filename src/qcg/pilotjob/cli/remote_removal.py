"""Removes the directories of an ended run on its remote hosts, for `qcg-pm clean --remote`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from qcg.pilotjob.executors.ssh.config import HostConfig, HostsError, find_host, load_hosts
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.marker import FORGOTTEN, read_states
from qcg.pilotjob.executors.ssh.run_removal import remove_run_directory
from qcg.pilotjob.executors.ssh.transport import RemoteError
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.metadata import INSTANCE, OPTIONS
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.runs.removal import RemovalError
from qcg.pilotjob.runs.rundir import PREFIX


def remote_directories(run_dir: Path) -> dict[str, str]:
    """The directories of a run on its hosts, by host. Hosts that the user has given up are left out."""
    states = read_states(run_dir)
    return {name: state.run_dir for name, state in states.items() if state.run_dir and state.state != FORGOTTEN}


def remove_remote_directories(run_dir: Path) -> Iterator[str]:
    """Remove them, and yield a line about each. Raises RemovalError: the run is kept then, to be tried again."""
    directories = remote_directories(run_dir)
    if not directories:
        return
    try:
        with snapshot(run_dir / FILE_NAME, whole=False) as connection:
            options = OPTIONS.read(connection)
            instance = INSTANCE.read(connection) or ""
        hosts = load_hosts(None if options is None else options.hosts, os.environ)
        configs = {name: find_host(hosts, name) for name in directories}
    except (JournalError, OSError, HostsError) as error:
        raise RemovalError(str(error)) from None
    run_id = run_dir.name.removeprefix(PREFIX)
    for name, config in configs.items():
        was_there = _remove(config, run_id, instance)
        place = f"{directories[name]} on {name}"
        yield f"Removed {place}" if was_there else f"There is no {place} any more"


def _remove(config: HostConfig, run_id: str, instance: str) -> bool:
    try:
        return asyncio.run(remove_run_directory(config, run_id, instance))
    except (ConnectionProblem, RemoteError) as problem:
        raise RemovalError(f"its directory on {config.name} could not be removed: {problem}") from None
