"""Opens files without following links, without blocking, and only when they belong to the caller.

Working directories may be shared with other users, who can put anything under a name that a command looks for: a named
pipe, a link to a device, a directory, a file of 200 GB, or a whole run of their own. Everything that is read from run
directories is opened here.

A file or directory is the caller's own when its owner is the effective user of this process and neither its group nor
others can write to it. This holds for root too: root takes only what belongs to root.
"""

import errno
import os
import pwd
import select
import stat
from typing import List, Optional, Union

PathLike = Union[str, "os.PathLike[str]"]

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


MOST_INPUT = 1 << 30
"""Size of the largest file of requests or jobs that is read."""
WRITER_TIMEOUT = 5.0
"""Seconds to wait for a program to write to a named pipe."""
_PART = 1 << 20


class UnsafeFile(OSError):
    """A file that must not be used. `reason` says why, for example `it belongs to user mallory`."""

    def __init__(self, reason: str, path: PathLike) -> None:
        super().__init__(errno.EPERM, reason, os.fspath(path))
        self.reason = reason

    @property
    def sentence(self) -> str:
        return "%s cannot be used: %s" % (self.filename, self.reason)


def why_not_own(status: os.stat_result) -> str:
    """Why a file or directory is not the caller's own; empty when it is."""
    if status.st_uid != os.geteuid():
        return "it belongs to %s" % user_name(status.st_uid)
    if not stat.S_ISLNK(status.st_mode) and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users can write to it (chmod go-w makes it yours alone)"
    return ""


def user_name(uid: int) -> str:
    """`user mallory`; the number where the user has no name on this machine."""
    try:
        return "user %s" % pwd.getpwuid(uid).pw_name
    except KeyError:
        return "user %d" % uid


def open_own(path: PathLike, flags: int = os.O_RDONLY, most_bytes: Optional[int] = None) -> int:
    """A descriptor of a regular file that is the caller's own; created with mode 600 when the flags say so.

    Raises UnsafeFile for everything else, FileNotFoundError when there is nothing.
    """
    descriptor = _open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        _check_regular(status, path)
        _check_owner(status, path)
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
        if most_bytes is not None and status.st_size > most_bytes:
            raise UnsafeFile("it has %d bytes, more than the %d that are read" % (status.st_size, most_bytes), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_own(path: PathLike, most_bytes: int) -> bytes:
    """The content of a small file that is the caller's own."""
    with os.fdopen(open_own(path, most_bytes=most_bytes), "rb") as file:
        return file.read(most_bytes)


def check_own_file(path: PathLike) -> None:
    """Check a file that a library opens by its name, as `open_own` does."""
    status = os.lstat(path)
    _check_regular(status, path)
    _check_owner(status, path)


def check_own_directory(path: PathLike) -> None:
    """Raise UnsafeFile unless a directory is the caller's own. A link to it has to be the caller's own, too."""
    for status in (os.lstat(path), os.stat(path)):
        _check_owner(status, path)
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeFile("it is %s" % _kind(status), path)


def open_regular(path: PathLike) -> int:
    """A descriptor for reading a regular file of any owner. Links are not followed."""
    descriptor = _open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        _check_regular(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_input(path: PathLike, most_bytes: int = MOST_INPUT) -> bytes:
    """The content of an input file named by the user: a regular file, a pipe or a device of any owner.

    Raises UnsafeFile for a pipe without a writer, and for more than `most_bytes`, as `/dev/zero` would give.
    """
    descriptor = _open(path, os.O_RDONLY)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise UnsafeFile("it is a directory", path)
        os.set_blocking(descriptor, True)
        if stat.S_ISFIFO(status.st_mode) and not select.select([descriptor], [], [], WRITER_TIMEOUT)[0]:
            raise UnsafeFile("it is a named pipe that nobody writes to", path)
        parts: List[bytes] = []
        left = most_bytes if status.st_size <= most_bytes else -1
        while left >= 0:
            part = os.read(descriptor, min(left + 1, _PART))
            if not part:
                return b"".join(parts)
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    raise UnsafeFile("it has more than the %d MiB that are read" % (most_bytes >> 20), path)


def open_output(path: PathLike, flags: int) -> int:
    """A descriptor for writing to a file named by the user: a new file, one of the caller's own, or a device.

    Links are followed only when the user or root made them, as for `/dev/stdout`. In a directory that others can write
    to, a link made by them could point to any file of the user.
    """
    truncate = flags & os.O_TRUNC  # only after the checks
    flags &= ~os.O_TRUNC
    descriptor = _open(path, flags if _is_trusted_link(path) else flags | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            if status.st_uid != os.geteuid():
                raise UnsafeFile("it belongs to %s" % user_name(status.st_uid), path)
            if truncate:
                os.ftruncate(descriptor, 0)
        elif not stat.S_ISCHR(status.st_mode):
            raise UnsafeFile("it is %s" % _kind(status), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_trusted_link(path: PathLike) -> bool:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
        raise UnsafeFile("it is a symbolic link that belongs to %s" % user_name(status.st_uid), path)
    return stat.S_ISLNK(status.st_mode)


def _open(path: PathLike, flags: int) -> int:
    """Open without blocking. Raises UnsafeFile for kinds of files that cannot be opened so."""
    try:
        return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise UnsafeFile("it is %s" % _kind(os.lstat(path)), path) from None
        raise


def _check_regular(status: os.stat_result, path: PathLike) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFile("it is %s" % _kind(status), path)


def _check_owner(status: os.stat_result, path: PathLike) -> None:
    reason = why_not_own(status)
    if reason:
        raise UnsafeFile(reason, path)


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
