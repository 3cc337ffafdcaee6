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
    """Some file systems give every file to one user, or let everybody write: no run of theirs could be used again."""
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
    try:
        yield
    except OSError as error:
        advice = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "mend that, or choose another --wd"
        raise UsageError(
            f"the run directory {run_dir} cannot be written: {error.strerror}; {advice}, and try again"
        ) from None


def link(wd: Path, target: Path, name: str) -> None:
    """`name` in the working directory leads to the newest run's file. What is the user's own there is left alone.

    Of a file that is kept elsewhere the user knows the place: there is no link to it, and none to an older run's.
    """
    place = wd / name
    if os.path.lexists(place) and not _leads_to_a_run(place):
        return
    with suppress(FileNotFoundError):
        owner = os.lstat(place).st_uid
        if owner != os.geteuid():
            log.warning("the link %s is left as it is: it belongs to %s", place, user_name(owner))
            return
    temporary = wd / f".{name}.{os.getpid()}"
    try:
        temporary.unlink(missing_ok=True)
        if target.parent.name.startswith(PREFIX):
            temporary.symlink_to(os.path.relpath(target, wd))
            temporary.replace(place)
        else:
            place.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the link %s could not be made: %s", place, os.strerror(error.errno or 0))


def discard(wd: Path, run_dir: Path) -> None:
    """Remove a run directory without jobs."""
    shutil.rmtree(run_dir, ignore_errors=True)
    relink(wd, run_dir)


def relink(wd: Path, removed: Path) -> None:
    """Point links to a removed run to the newest run that is left."""
    for name in ("service.log", "jobs.report"):
        if _leads_to_a_run(wd / name) and Path(os.readlink(wd / name)).parent.name == removed.name:
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


def _leads_to_a_run(place: Path) -> bool:
    return place.is_symlink() and Path(os.readlink(place)).parent.name.startswith(PREFIX)
