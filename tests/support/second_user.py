"""Another user of the machine: files that root hands over to a user id that is not the tests' own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from qcg.pilotjob.host.safe_open import user_name

UID = 65534
"""Has a name on most machines (`nobody`), and needs none."""
NAME = user_name(UID)
"""As messages have it."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


def give_away(path: Path, uid: int = UID) -> Path:
    """Make a file, a link, or a directory with everything in it another user's."""
    for each in [path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())]:
        os.chown(each, uid, uid, follow_symlinks=False)
    return path


def odd_things(path: Path) -> Iterator[str]:
    """Put one after another thing at this place that is no ordinary file; yields what it is called."""
    for kind in ("a named pipe", "a symbolic link", "a directory", "a socket"):
        if kind == "a named pipe":
            os.mkfifo(path, 0o600)
        elif kind == "a symbolic link":
            path.symlink_to("/dev/zero")
        elif kind == "a directory":
            path.mkdir(0o700)
        else:
            os.mknod(path, 0o140600)
        yield kind
        path.rmdir() if kind == "a directory" else path.unlink()
