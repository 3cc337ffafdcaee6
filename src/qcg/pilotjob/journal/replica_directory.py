"""The temporary directory of a replica: private, and removed when its process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

from qcg.pilotjob.common.uninterrupted import uninterrupted
from qcg.pilotjob.host.safe_open import check_own_directory, open_own

PREFIX = "qcg-pm-replica-"
LOCK = "lock"


class ReplicaDirectory:
    """A directory that only its owner can enter.

    It is removed by `close`, and when the interpreter exits: also after Ctrl-C, and after SIGTERM in commands that turn
    the signal into `SystemExit`. A process that was killed leaves its directory behind; the next one of the same user
    removes it. Each process holds a lock in its directory, so that directories in use are not removed.
    """

    def __init__(self) -> None:
        _remove_abandoned()
        with uninterrupted():
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            # Renamed when it is locked: other processes never see a lock file that nobody holds.
            new = self.path / f"{LOCK}.new"
            lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(self.path / LOCK)
            self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def close(self) -> None:
        self._remove()


def _remove(path: Path, lock: int, owner: int) -> None:
    """Remove the directory, unless this process is a fork of its owner."""
    if os.getpid() == owner:
        with uninterrupted():
            shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _remove_abandoned() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            check_own_directory(path)
            descriptor = open_own(path / LOCK, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
