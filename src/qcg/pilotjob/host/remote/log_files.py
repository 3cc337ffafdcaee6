"""Finds the directories and files of attempts for users, who name them `POINT/NAME/NN`."""

import os
import stat
from typing import List

from qcg.pilotjob.host.remote.errors import CommandError
from qcg.pilotjob.host.remote.layout import Layout, check_relative


def find_directory(layout: Layout, path: str) -> str:
    """The directory of an attempt, in the newest log directory that has it. Raises CommandError."""
    check_relative(path, "directory of an attempt")
    name = path if path.startswith("job/") else "job/" + path
    for log in layout.log_directories():
        directory = "%s/%s" % (log, name)
        if os.path.isdir(directory):
            return os.path.realpath(directory)
    raise CommandError("There is no attempt %s in %s on %s." % (path, layout.log, layout.host))


def list_files(directory: str) -> List[str]:
    names = sorted(os.listdir(directory))
    return [name for name in names if stat.S_ISREG(os.lstat("%s/%s" % (directory, name)).st_mode)]
