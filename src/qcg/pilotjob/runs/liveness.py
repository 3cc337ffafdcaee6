"""Whether a run has a live manager or live agents."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from qcg.pilotjob.agent.pidfile import is_alive as is_agent_alive
from qcg.pilotjob.agent.pidfile import read_agent_pid
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import AllocationState
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.host.safe_open import open_own
from qcg.pilotjob.journal.registry_files import FILE_NAME
from qcg.pilotjob.runs.guard import is_alive
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import Contact, ContactError

_FLOCK = "hhqqi"
"""`struct flock`: type, whence, start, length, pid."""


def has_manager(run_dir: Path) -> bool:
    """Whether the run has a live manager; False when its files cannot be read."""
    try:
        found = contact.read(run_dir)
        return is_manager_alive(run_dir, found) if found is not None else registry_holder(run_dir) is not None
    except (ContactError, OSError):
        return False


def is_manager_alive(run_dir: Path, found: Contact) -> bool:
    """Whether the manager that wrote this contact file is alive; False when that cannot be determined."""
    try:
        return is_alive(run_dir, found)
    except OSError:  # a manager on another host, and the clock of the file system cannot be read
        return False


def registry_holder(run_dir: Path) -> int | None:
    """The pid of the process that has the registry locked, 0 when the pid is not known; None without such a process.

    A manager keeps its registry locked as long as it lives, even when its contact file is removed.
    """
    try:
        descriptor = open_own(run_dir / FILE_NAME)
    except OSError:
        return None
    try:
        lock = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, lock))
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


def has_agents(run_dir: Path) -> bool | None:
    """Whether an agent of the run is alive; None when that is not known."""
    known: bool | None = False
    checked: dict[AllocationRef, bool | None] = {}
    for path in sorted(run_dir.glob("agent-*.json")):
        found = read_agent_pid(run_dir, path.stem.removeprefix("agent-"))
        if found is None:
            continue
        allocation = AllocationRef(found.allocation, found.cluster, found.batch_system)
        if found.host == host_name():
            alive: bool | None = is_agent_alive(found)
        elif allocation in checked:
            continue
        else:
            alive = checked[allocation] = _is_allocation_active(allocation)
        if alive:
            return True
        known = None if alive is None else known
    return known


def _is_allocation_active(allocation: AllocationRef) -> bool | None:
    if not allocation.id:
        return None
    try:
        return batch_system(allocation.system).state_of(allocation, os.environ) is not AllocationState.OVER
    except ClusterError:
        return None


def hosts_with_attempts(run_dir: Path) -> tuple[str, ...]:
    """The remote hosts on which attempts of a run without a manager may still be running."""
    from qcg.pilotjob.executors.ssh.marker import read_states

    return tuple(name for name, state in read_states(run_dir).items() if state.may_have_attempts)
