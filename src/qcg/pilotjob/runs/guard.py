"""One manager for a run: the contact file says who it is."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import msgspec

from qcg.pilotjob.agent.pidfile import is_alive as is_at_work
from qcg.pilotjob.agent.pidfile import is_claimed, is_damaged, read_agent_pid, remove_agent_pid
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.fate import Fate, fate_of
from qcg.pilotjob.cluster.slurm import cluster_of, is_on_node, job_id_of
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.executors.ssh_probe import has_left
from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.host.process_tree import read_process
from qcg.pilotjob.runs.machine_check import sees_processes
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import AgentsContact, ClientsContact, Contact, ContactError

FRESH = 30.0
"""A manager touches its contact file every few seconds: on another host, one younger than this is alive."""
ENDING = 15.0
"""Seconds for Slurm to end an allocation, before whoever wants to go on with its run is told to wait."""
PAUSE = 2.0
"""Seconds between two looks at one that seems to be at work elsewhere."""


def check_free(run_dir: Path) -> None:
    """Refuse a run whose manager is alive."""
    try:
        found = contact.read(run_dir)
    except ContactError as error:
        raise UsageError(str(error)) from None
    if found is None:
        return
    if not is_alive(run_dir, found):
        return
    # On this host the process itself has just been seen; of another one only its file, which gets old slowly.
    if found.host == host_name() or not _ended_with(found.allocation, found.cluster):
        raise UsageError(
            f"a manager (pid {found.pid} on {found.host}) is at work in {run_dir}; wait for it, or end it first"
        )


def wait_until_free(run_dir: Path) -> None:
    """A manager of the same job, before Slurm queued it again on other nodes, counts as alive until its contact file is
    old. One that is alive indeed is told about when the run is taken up."""
    patience = time.monotonic() + FRESH + 5 * PAUSE
    while time.monotonic() < patience:
        try:
            check_free(run_dir)
        except UsageError:
            time.sleep(PAUSE)
        else:
            return


def is_alive(run_dir: Path, found: Contact) -> bool:
    """Whether the manager that wrote this contact file is still there."""
    if not found.pid:
        return False  # it has said so
    if found.host == host_name() and sees_processes():
        process = read_process(found.pid)
        return process is not None and not process.dead and process.start_ticks == found.started
    try:
        return _now_of(run_dir) - (run_dir / contact.FILE_NAME).stat().st_mtime < FRESH
    except FileNotFoundError:
        return False


def _ended_with(allocation: str, cluster: str) -> bool:
    """Whether it is sure that the allocation is over, and with it all that ran there."""
    try:
        return bool(allocation) and _settled_fate(allocation, cluster) is Fate.OVER
    except ClusterError:
        return False


def _settled_fate(allocation: str, cluster: str) -> Fate:
    """An allocation that Slurm is about to end is over a few seconds later, as a rule."""
    patience = time.monotonic() + ENDING
    while (fate := fate_of(allocation, cluster, os.environ)) is Fate.ENDING and time.monotonic() < patience:
        time.sleep(PAUSE)
    return fate


def check_agents(run_dir: Path, instance: str) -> None:
    """Refuse a run whose agents may be at work elsewhere: what they run must not be started again here.

    Those of the allocation that the manager is in are called to it. Those of one that is over are gone.
    `instance`: the mark of all processes of the run's jobs.
    """
    mine = (job_id_of(os.environ), cluster_of(os.environ))
    over: dict[tuple[str, str], bool] = {}
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
        whose = (found.allocation, found.cluster)
        if whose not in over:
            over[whose] = _is_over(run_dir, *whose)
        if not over[whose]:
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


def _is_over(run_dir: Path, allocation: str, cluster: str) -> bool:
    try:
        fate = _settled_fate(allocation, cluster)
    except ClusterError as error:
        raise UsageError(f"agents of {run_dir} may still run jobs: {error}") from None
    if fate is Fate.ENDING:
        raise UsageError(
            f"agents of {run_dir} may still run jobs: allocation {allocation} is about to end; wait until job"
            f" {allocation} has ended"
        )
    return fate is Fate.OVER


def _now_of(directory: Path) -> float:
    """The time by the clock that stamps the files of this directory, which may be another machine's."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b".")
        file.flush()
        return os.fstat(file.fileno()).st_mtime


def announce(run_dir: Path, agents: AgentsContact, clients: ClientsContact | None) -> None:
    """From now on agents and clients find this manager."""
    process = read_process(os.getpid())
    assert process is not None
    allocation = (job_id_of(os.environ) or "") if is_on_node(os.environ) else ""
    contact.write(
        run_dir,
        Contact(
            agents,
            process.pid,
            process.start_ticks,
            host_name(),
            clients,
            allocation,
            cluster_of(os.environ) if allocation else "",
        ),
    )


def refresh(run_dir: Path) -> None:
    """Say that this manager is alive, for those who cannot see its process."""
    os.utime(run_dir / contact.FILE_NAME)


def leave(run_dir: Path) -> None:
    """This manager goes, and its agents live on. They look for another one in the file, which stays: some file systems
    remember for long what was missing."""
    found = contact.read(run_dir)
    if found is not None:
        contact.write(run_dir, msgspec.structs.replace(found, pid=0))


def withdraw(run_dir: Path) -> None:
    contact.remove(run_dir)
