"""The guard against a second manager of a run, based on the contact file."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from qcg.pilotjob.agent.pidfile import AgentPid, is_claimed, is_damaged, read_agent_pid, remove_agent_pid
from qcg.pilotjob.agent.pidfile import is_alive as is_agent_alive
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import AllocationState
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.registry import batch_system, current_allocation, system_in_use
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.host.process_tree import read_process
from qcg.pilotjob.runs.manager_process import CONTACT_MAX_AGE, is_alive
from qcg.pilotjob.runs.ssh_probe import has_left
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import AgentsContact, ClientsContact, Contact, ContactError

ALLOCATION_END_TIMEOUT = 15.0
"""Seconds to wait for the end of an allocation before the resumption of its run is refused."""
PAUSE = 2.0
"""Seconds between two checks of a manager or an allocation."""


def check_no_manager(run_dir: Path) -> None:
    """Raise UsageError when the run has a live manager."""
    try:
        found = contact.read(run_dir)
    except ContactError as error:
        raise UsageError(str(error)) from None
    if found is None:
        return
    if not is_alive(run_dir, found):
        return
    # On this host the process itself was checked; on another host only its file, which may outlive the allocation.
    if found.host == host_name() or not _is_certainly_over(
        AllocationRef(found.allocation, found.cluster, found.batch_system)
    ):
        raise UsageError(
            f"a manager (pid {found.pid} on {found.host}) is at work in {run_dir}; wait for it, or end it first"
        )


def wait_for_manager_end(run_dir: Path) -> None:
    """Wait until the contact file of the previous manager is old, after the batch system requeued the allocation.

    Returns after a timeout when the manager is still alive: then resuming the run raises UsageError.
    """
    deadline = time.monotonic() + CONTACT_MAX_AGE + 5 * PAUSE
    while time.monotonic() < deadline:
        try:
            check_no_manager(run_dir)
        except UsageError:
            time.sleep(PAUSE)
        else:
            return


def _is_certainly_over(allocation: AllocationRef) -> bool:
    """Whether the allocation is certainly over, and with it all its processes."""
    try:
        return bool(allocation.id) and _settled_state(allocation) is AllocationState.OVER
    except ClusterError:
        return False


def _settled_state(allocation: AllocationRef) -> AllocationState:
    """The state of an allocation. Waits a few seconds for the end of one that is about to end."""
    deadline = time.monotonic() + ALLOCATION_END_TIMEOUT
    system = batch_system(allocation.system)
    while (state := system.state_of(allocation, os.environ)) is AllocationState.ENDING:
        if time.monotonic() >= deadline:
            break
        time.sleep(PAUSE)
    return state


def check_agents(run_dir: Path, instance: str, hosts: Collection[str] = ()) -> None:
    """Refuse a run whose agents may be alive elsewhere: their jobs must not be started again here.

    Agents of the manager's own allocation connect to it, and agents of an allocation that is over are gone.
    `instance`: the mark of all processes of the run's jobs. `hosts`: hosts of a host file, whose agents connect too.
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
            continue  # it connects, or its successor ends its processes
        if here and is_agent_alive(found):
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
    """Refuse a run with a live agent on a host that is not in the manager's host file."""
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


def announce(run_dir: Path, agents: AgentsContact | None, clients: ClientsContact | None) -> None:
    """Write the contact file, so that agents and clients find this manager. Either of them may have no address."""
    process = read_process(os.getpid())
    assert process is not None
    system = system_in_use(os.environ)
    found = system.allocation_ref(os.environ) if system is not None and system.is_on_node(os.environ) else None
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


def mark_ended(run_dir: Path) -> None:
    """Mark the manager as ended in the contact file. The file is kept for agents that wait for the next manager:
    some file systems cache the absence of a file."""
    found = contact.read(run_dir)
    if found is not None:
        contact.write(run_dir, msgspec.structs.replace(found, pid=0))


def remove_contact(run_dir: Path) -> None:
    contact.remove(run_dir)
