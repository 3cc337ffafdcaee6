"""The guard against a second manager of a run, based on the contact file."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from qcg.pilotjob.agent.pidfile import AgentPid, is_claimed, is_damaged, read_agent_pid, remove_agent_pid
from qcg.pilotjob.agent.pidfile import is_alive as is_at_work
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import AllocationState
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.registry import batch_system, current_allocation, system_in_use
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.host.process_tree import read_process
from qcg.pilotjob.runs.machine_check import sees_processes
from qcg.pilotjob.runs.ssh_probe import has_left
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import AgentsContact, ClientsContact, Contact, ContactError

FRESH = 30.0
"""A manager touches its contact file every few seconds: on another host, one younger than this is alive."""
ENDING = 15.0
"""Seconds for the batch system to end an allocation, before a user who resumes its run is told to wait."""
PAUSE = 2.0
"""Seconds between two checks of a manager or an allocation."""


def check_free(run_dir: Path) -> None:
    """Raise UsageError when the run has a live manager."""
    try:
        found = contact.read(run_dir)
    except ContactError as error:
        raise UsageError(str(error)) from None
    if found is None:
        return
    if not is_alive(run_dir, found):
        return
    # On this host the process itself has just been seen; of another one only its file, which gets old slowly.
    if found.host == host_name() or not _ended_with(AllocationRef(found.allocation, found.cluster, found.batch_system)):
        raise UsageError(
            f"a manager (pid {found.pid} on {found.host}) is at work in {run_dir}; wait for it, or end it first"
        )


def wait_until_free(run_dir: Path) -> None:
    """A manager of the same allocation, before it was queued again on other nodes, counts as alive until its contact
    file is old. One that is alive indeed is told about when the run is taken up."""
    patience = time.monotonic() + FRESH + 5 * PAUSE
    while time.monotonic() < patience:
        try:
            check_free(run_dir)
        except UsageError:
            time.sleep(PAUSE)
        else:
            return


def is_alive(run_dir: Path, found: Contact) -> bool:
    """Whether the manager that wrote this contact file is alive."""
    if not found.pid:
        return False  # the manager wrote that it has ended
    if found.host == host_name() and sees_processes():
        process = read_process(found.pid)
        return process is not None and not process.dead and process.start_ticks == found.started
    try:
        return _now_of(run_dir) - (run_dir / contact.FILE_NAME).stat().st_mtime < FRESH
    except FileNotFoundError:
        return False


def _ended_with(allocation: AllocationRef) -> bool:
    """Whether it is sure that the allocation is over, and with it all that ran there."""
    try:
        return bool(allocation.id) and _settled_state(allocation) is AllocationState.OVER
    except ClusterError:
        return False


def _settled_state(allocation: AllocationRef) -> AllocationState:
    """The state of an allocation. One that is about to end is usually over a few seconds later: that is waited for."""
    patience = time.monotonic() + ENDING
    system = batch_system(allocation.system)
    while (state := system.state_of(allocation, os.environ)) is AllocationState.ENDING:
        if time.monotonic() >= patience:
            break
        time.sleep(PAUSE)
    return state


def check_agents(run_dir: Path, instance: str, hosts: Collection[str] = ()) -> None:
    """Refuse a run whose agents may be at work elsewhere: what they run must not be started again here.

    Those of the allocation that the manager is in are called to it. Those of one that is over are gone.
    `instance`: the mark of all processes of the run's jobs. `hosts`: hosts of a host file, whose agents are called too.
    """
    current = current_allocation(os.environ)
    mine = None if current is None else (current.id, current.cluster)
    over: dict[AllocationRef, bool] = {}
    for path in sorted(run_dir.glob("agent-*.json")):
        name = path.stem.removeprefix("agent-")
        found = read_agent_pid(run_dir, name)
        if found is None and is_damaged(run_dir, name) and not is_claimed(run_dir, name):
            raise UsageError(
                f"{path} is damaged: it does not say on which host the agent {name} was started, and whether it may"
                " still run jobs; remove the file when no such agent is left anywhere, and try again"
            )
        if found is None or (found.allocation, found.cluster) == mine:
            continue
        here = found.host == host_name()
        if found.outside and not found.allocation:
            _check_host_of_file(run_dir, name, found, instance, hosts)
            continue
        if here and not found.allocation:
            continue  # called, or followed by another one that ends what it has left
        if here and is_at_work(found):
            raise UsageError(
                f"the agent {name} of {run_dir} (pid {found.pid}) is at work on this host, for allocation"
                f" {found.allocation}; resume the run inside that allocation, or end the agent with"
                f" `kill {found.pid}` first"
            )
        if not found.allocation:
            raise UsageError(
                f"an agent of {run_dir} was started on {found.host} and may still run jobs there; resume the run on"
                f" {found.host}, or remove {path} when that host is gone for good"
            )
        allocation = AllocationRef(found.allocation, found.cluster, found.batch_system)
        if allocation not in over:
            over[allocation] = _is_over(run_dir, allocation)
        if not over[allocation]:
            raise UsageError(
                f"an agent of {run_dir} was started on {found.host} in allocation {found.allocation}, which is not"
                " over, and may still run jobs there; resume the run inside that allocation, or cancel it first"
            )
        if found.outside and not has_left(name, found.pid, instance):
            raise UsageError(
                f"an agent of {run_dir} was started on {found.host} by ssh and may still run jobs there, although"
                f" allocation {found.allocation} is over; it ends within a minute: try again then, or remove {path}"
                " when nothing of it is left there"
            )
        remove_agent_pid(run_dir, name)


def _check_host_of_file(run_dir: Path, name: str, found: AgentPid, instance: str, hosts: Collection[str]) -> None:
    """Refuse a run with an agent on a host of a host file that is at work, and that this manager does not call."""
    if name in hosts:
        return
    if not has_left(name, found.pid, instance):
        raise UsageError(
            f"an agent of {run_dir} was started on {name} by ssh and may still run jobs there; resume the run with a"
            f" host file that lists {name}, or remove {run_dir / f'agent-{name}.json'} when nothing of it is left there"
        )
    remove_agent_pid(run_dir, name)


def _is_over(run_dir: Path, allocation: AllocationRef) -> bool:
    try:
        state = _settled_state(allocation)
    except ClusterError as error:
        raise UsageError(f"agents of {run_dir} may still run jobs: {error}") from None
    if state is AllocationState.ENDING:
        raise UsageError(
            f"agents of {run_dir} may still run jobs: allocation {allocation.id} is about to end; wait until job"
            f" {allocation.id} has ended"
        )
    return state is AllocationState.OVER


def _now_of(directory: Path) -> float:
    """The time by the clock that stamps the files of this directory, which may be another machine's."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b".")
        file.flush()
        return os.fstat(file.fileno()).st_mtime


def announce(run_dir: Path, agents: AgentsContact | None, clients: ClientsContact | None) -> None:
    """Write the contact file, so that agents and clients find this manager. Either of them may have no address."""
    process = read_process(os.getpid())
    assert process is not None
    system = system_in_use(os.environ)
    found = system.current(os.environ) if system is not None and system.is_on_node(os.environ) else None
    allocation = found or AllocationRef()
    contact.write(
        run_dir,
        Contact(
            process.pid,
            process.start_ticks,
            host_name(),
            agents,
            clients,
            allocation.id,
            allocation.cluster,
            allocation.system,
        ),
    )


def refresh(run_dir: Path) -> None:
    """Touch the contact file: processes on other hosts see that this manager is alive."""
    os.utime(run_dir / contact.FILE_NAME)


def leave(run_dir: Path) -> None:
    """Mark the manager as ended in the contact file, and keep the file for agents that wait for the next manager: some
    file systems cache missing files for long."""
    found = contact.read(run_dir)
    if found is not None:
        contact.write(run_dir, msgspec.structs.replace(found, pid=0))


def withdraw(run_dir: Path) -> None:
    contact.remove(run_dir)
