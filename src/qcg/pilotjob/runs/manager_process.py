"""Whether a run has a live manager. Loads little: every command that asks a manager begins with it."""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from pathlib import Path

from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.host.process_tree import read_process
from qcg.pilotjob.host.safe_open import open_own
from qcg.pilotjob.journal.registry_files import FILE_NAME
from qcg.pilotjob.runs.machine_check import sees_processes
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import Contact, ContactError

CONTACT_MAX_AGE = 30.0
"""Age in seconds of a contact file at which a manager on another host counts as dead. Live managers touch the file
every few seconds."""
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


def is_alive(run_dir: Path, found: Contact) -> bool:
    """Whether the manager that wrote this contact file is alive."""
    if not found.pid:
        return False  # marked as ended
    if found.host == host_name() and sees_processes():
        process = read_process(found.pid)
        return process is not None and not process.dead and process.start_ticks == found.started
    try:
        return _file_system_time(run_dir) - (run_dir / contact.FILE_NAME).stat().st_mtime < CONTACT_MAX_AGE
    except FileNotFoundError:
        return False


def _file_system_time(directory: Path) -> float:
    """The time of the clock that stamps files of this directory, which may be that of a file server."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b".")
        file.flush()
        return os.fstat(file.fileno()).st_mtime
