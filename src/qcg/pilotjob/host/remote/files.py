"""Writes to file systems that may be full, and locks on file systems that may have none."""

import contextlib
import errno
import fcntl
import os

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of the content. Raises OSError."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def append_lines(path: str, lines: bytes) -> None:
    """Append lines in one write, so that writers do not mix their lines. Raises OSError.

    The write begins with a new line, because a full disk may have cut off the end of the write before."""
    content = b"\n" + lines
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        written = os.write(descriptor, content)
        if written < len(content):
            _cut_off(descriptor, written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(descriptor)


def lock(descriptor: int, how: int) -> bool:
    """Lock a file as with `fcntl.flock`. False where the file system has no locks, and nothing is. Raises OSError."""
    try:
        fcntl.flock(descriptor, how)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


def _cut_off(descriptor: int, written: int) -> None:
    """Remove the beginning of a write from the end of a file: a reader could take a part of a value for the whole."""
    with contextlib.suppress(OSError):
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        if os.fstat(descriptor).st_size == end:
            os.ftruncate(descriptor, end - written)
