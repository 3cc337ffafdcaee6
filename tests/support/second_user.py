"""A second user of the machine: root gives files to another user id."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qcg.pilotjob.host.safe_open import user_name
from tests.support.pilot import COMMANDS

UID = 65534
"""User id of the second user: `nobody` on most machines; it needs no name."""
NAME = user_name(UID)
"""Name of the second user in messages."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


def give_away(path: Path, uid: int = UID) -> Path:
    """Give a file, a link, or a directory with its content to the second user."""
    for each in [path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())]:
        os.chown(each, uid, uid, follow_symlinks=False)
    return path


def run_as_second_user(wd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `qcg-pm` in a process of the other user.

    The interpreter may lie where other users cannot read, so the process may read everything. Whose files are whose is
    not changed by that.
    """
    numbers = ["--reuid", str(UID), "--regid", str(UID), "--clear-groups"]
    rights = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    command = ["setpriv", *numbers, *rights, sys.executable, *COMMANDS["qcg-pm"], *arguments]
    environ = {**os.environ, "HOME": str(wd), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=wd, env=environ, capture_output=True, text=True, timeout=60)


def irregular_files(path: Path) -> Iterator[str]:
    """Create each kind of irregular file at this path in turn; yields its name in messages."""
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
