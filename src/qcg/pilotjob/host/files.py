"""Files that come with a launch, such as the machine file of an MPI program. They exist while the job runs.

    DIRECTORY/ID/NAME           a file of one job, removed at its end
    DIRECTORY/shared/NAME       a file shared by all jobs that name it, written once and never changed

Only their owner can read them.
"""

import contextlib
import os
import shutil
from typing import Dict, Set

from qcg.pilotjob.host.records import SHARED, file_path
from qcg.pilotjob.host.start_errors import Unstartable


class LaunchFiles:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._written: Set[str] = set()
        """Names of shared files that are written."""

    def write(self, id: str, files: Dict[str, str]) -> bool:
        """Write the files of a job. Returns whether some have to be removed at its end. Raises Unstartable."""
        own = False
        for name, text in files.items():
            if name in self._written:
                continue
            path = file_path(self._directory, id, name)
            try:
                _write_atomically(path, text)
            except OSError as error:
                why = "The file %s, which the job needs, cannot be written: %s." % (path, error.strerror)
                raise Unstartable(why) from None
            if name.startswith(SHARED):
                self._written.add(name)
            else:
                own = True
        return own

    def remove(self, id: str) -> None:
        """Remove the files of a job. Errors are ignored: files that stay do no harm."""
        shutil.rmtree(os.path.join(self._directory, id), ignore_errors=True)


def _write_atomically(path: str, text: str) -> None:
    """Write a file atomically, because agents of other nodes may read or write it at the same time."""
    target = path.encode("utf-8", "surrogateescape")
    new = target + (".%s-%d" % (os.uname()[1], os.getpid())).encode("utf-8", "surrogateescape")
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)  # left by an agent that was killed
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    os.rename(new, target)
