"""One manager for a run: the contact file says who it is."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from qcg.pilotjob.agent.pidfile import read_agent_pid, remove_agent_pid
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.slurm import is_over, job_id_of
from qcg.pilotjob.host.tree import look_at
from qcg.pilotjob.options import UsageError
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import AgentsContact, ClientsContact, Contact, ContactError

FRESH = 30.0
"""A manager touches its contact file every few seconds: on another host, one younger than this is alive."""


def check_free(run_dir: Path) -> None:
    """Refuse a run whose manager is alive."""
    try:
        found = contact.read(run_dir)
    except ContactError as error:
        raise UsageError(str(error)) from None
    if found is None:
        return
    if is_alive(run_dir, found) and not _ended_with(found.allocation):
        raise UsageError(
            f"a manager (pid {found.pid} on {found.host}) is at work in {run_dir}; wait for it, or end it first"
        )


def is_alive(run_dir: Path, found: Contact) -> bool:
    """Whether the manager that wrote this contact file is still there."""
    if found.host == socket.gethostname():
        process = look_at(found.pid)
        return process is not None and not process.dead and process.began == found.started
    try:
        return _now_of(run_dir) - (run_dir / contact.FILE_NAME).stat().st_mtime < FRESH
    except FileNotFoundError:
        return False


def _ended_with(allocation: str) -> bool:
    """Whether it is sure that the allocation is over, and with it all that ran there."""
    try:
        return bool(allocation) and is_over(allocation, os.environ)
    except ClusterError:
        return False


def check_agents(run_dir: Path, job_id: str | None) -> None:
    """Refuse a run whose agents may be at work on another host: what they run must not be started again here.

    Those of the allocation that the manager is in are called to it. Those of one that is over are gone.
    """
    over: dict[str, bool] = {}
    for path in run_dir.glob("agent-*.json"):
        name = path.stem.removeprefix("agent-")
        found = read_agent_pid(run_dir, name)
        if found is None or (job_id and found.allocation == job_id):
            continue
        if found.allocation and found.allocation not in over:
            over[found.allocation] = is_over(found.allocation, os.environ)
        if over.get(found.allocation):
            remove_agent_pid(run_dir, name)
        elif found.host != socket.gethostname():
            raise UsageError(
                f"an agent of {run_dir} was started on {found.host} and may still run jobs there; resume the run on"
                f" {found.host}, or remove {path} when that host is gone for good"
            )


def _now_of(directory: Path) -> float:
    """The time by the clock that stamps the files of this directory, which may be another machine's."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b".")
        file.flush()
        return os.fstat(file.fileno()).st_mtime


def announce(run_dir: Path, agents: AgentsContact, clients: ClientsContact | None) -> None:
    """From now on agents and clients find this manager."""
    process = look_at(os.getpid())
    assert process is not None
    allocation = job_id_of(os.environ) or ""
    contact.write(run_dir, Contact(agents, process.pid, process.began, socket.gethostname(), clients, allocation))


def refresh(run_dir: Path) -> None:
    """Say that this manager is alive, for those who cannot see its process."""
    os.utime(run_dir / contact.FILE_NAME)


def withdraw(run_dir: Path) -> None:
    contact.remove(run_dir)
