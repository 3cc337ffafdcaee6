"""The run directory, which holds all files of one run and is readable by its owner only."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_directory, user_name

log = logging.getLogger(__name__)

PREFIX = ".qcgpjm-service-"
LOG_NAME = "service.log"
"""The log of the manager."""


def create(wd: Path, given_id: str | None) -> Path:
    """Create a run directory. A given id must be new; without one, a new id is generated."""
    try:
        str(wd).encode()
    except UnicodeEncodeError:
        raise UsageError("the path of the working directory is not UTF-8; choose another --wd") from None
    if wd.exists() and not wd.is_dir():
        raise UsageError(f"{wd} is not a directory, so that no run can be in it; choose another --wd")
    try:
        wd.mkdir(parents=True, exist_ok=True)
        while True:
            number = int.from_bytes(os.urandom(8), "big") % 10**8
            run_id = given_id or f"{host_name()}.{number:08d}"
            if "/" in run_id or run_id in (".", ".."):
                raise UsageError(f"--id {run_id!r} cannot be part of a directory's name; leave out the '/'")
            path = wd / (PREFIX + run_id)
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                if given_id:
                    raise UsageError(
                        f"there is already a run with the id {given_id!r} in {wd}: continue it with"
                        f" --resume {path}, or give another --id"
                    ) from None
                continue
            _check_file_system(path)
            return path
    except OSError as error:
        raise UsageError(
            f"the run directory cannot be made in {wd}: {os.strerror(error.errno or 0)}; choose another --wd"
        ) from None


def _check_file_system(run_dir: Path) -> None:
    """Refuse a file system that ignores owners or modes of files: its runs could never be resumed."""
    try:
        check_own_directory(run_dir)
    except UnsafeFile as unsafe:
        run_dir.rmdir()
        raise UsageError(
            f"the file system of {run_dir.parent} does not keep owners and modes of files, so that others could change"
            f" the run (of a new directory in it, {unsafe.reason}); choose another --wd"
        ) from None


@contextmanager
def writing_to(run_dir: Path) -> Iterator[None]:
    """Context manager that turns errors of writing to a run directory into UsageError."""
    try:
        yield
    except OSError as error:
        advice = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "fix that, or choose another --wd"
        raise UsageError(
            f"the run directory {run_dir} cannot be written: {error.strerror}; {advice}, and try again"
        ) from None


def link(wd: Path, target: Path, name: str) -> None:
    """Link `name` in the working directory to the file of the newest run. A file of the user with this name is kept.

    A target outside the run directory gets no link: the user chose its path. A link to an older run is removed then.
    """
    path = wd / name
    if os.path.lexists(path) and not _points_to_run(path):
        return
    with suppress(FileNotFoundError):
        owner = os.lstat(path).st_uid
        if owner != os.geteuid():
            log.warning("the link %s is not changed: it belongs to %s", path, user_name(owner))
            return
    temporary = wd / f".{name}.{os.getpid()}"
    try:
        temporary.unlink(missing_ok=True)
        if target.parent.name.startswith(PREFIX):
            temporary.symlink_to(os.path.relpath(target, wd))
            temporary.replace(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the link %s could not be made: %s", path, os.strerror(error.errno or 0))


def discard(wd: Path, run_dir: Path) -> None:
    """Remove a run directory without jobs."""
    shutil.rmtree(run_dir, ignore_errors=True)
    relink(wd, run_dir)


def relink(wd: Path, removed: Path) -> None:
    """Point links to a removed run to the newest remaining run."""
    for name in (LOG_NAME, "jobs.report"):
        if _points_to_run(wd / name) and Path(os.readlink(wd / name)).parent.name == removed.name:
            newest = _newest_with(wd, name)
            if newest is None:
                (wd / name).unlink(missing_ok=True)
            else:
                link(wd, newest / name, name)


def _newest_with(wd: Path, name: str) -> Path | None:
    """The newest own run directory that has this file."""
    runs = [
        (found.st_mtime_ns, entry)
        for entry in wd.glob(f"{PREFIX}*")
        if (found := entry.lstat()).st_uid == os.getuid() and (entry / name).is_file()
    ]
    return max(runs)[1] if runs else None


def _points_to_run(path: Path) -> bool:
    return path.is_symlink() and Path(os.readlink(path)).parent.name.startswith(PREFIX)
