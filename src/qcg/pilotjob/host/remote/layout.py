"""The layout of the run directory on a host."""

import contextlib
import os
import re
import stat
from typing import List, Optional

from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.host.remote.environment import HOST_NAME
from qcg.pilotjob.host.remote.errors import ABSENT, REFUSED, CannotWrite, CommandError, os_error
from qcg.pilotjob.host.remote.files import write_all
from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_directory, open_own, read_own

LEDGER_SUFFIX = ".ledger"
BATCH = "batch"
"""Name of the ledger of jobs that go through a batch system."""
MOST_BYTES = 1 << 20
"""Size of the largest small file that is read."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")
_ID = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._:+-]{0,199}\Z")


class Layout:
    """The paths of one run on this host. All are absolute."""

    def __init__(self, run: str) -> None:
        """`run`: the run directory, absolute or relative to the home directory."""
        if not run or "\0" in run or ".." in run.split("/"):
            raise CommandError("%r is not a run directory: give it below the home directory." % run, REFUSED)
        self.home = os.path.expanduser("~")
        self.run_dir = os.path.normpath(os.path.join(self.home, run))
        if self.run_dir == os.path.normpath(self.home):
            raise CommandError("The home directory itself cannot be a run directory.", REFUSED)
        self.service = self.run_dir + "/.service"
        self.claims = self.service + "/claims"
        self.changes = self.service + "/changes"
        """One empty file for each attempt in a batch system whose status has changed."""
        self.files = self.service + "/files"
        """Files that come with launches."""
        self.instance = self.service + "/instance"
        self.uuid = self.service + "/uuid"
        self.known_as = self.service + "/known-as"
        """The manager's name for the host that uses this directory."""
        self.epoch = self.service + "/epoch"
        self.lock = self.service + "/lock"
        self.installed = self.service + "/installed"
        """Names of the service files that came with the last `remote-init`."""
        self.batch = self.service + "/batch.json"
        self.notify = self.service + "/notify.json"
        self.messages = self.service + "/messages"
        self.log = self.run_dir + "/log"
        """A link to the log directory of the last start of the run."""
        self.host = _NOT_IN_NAMES.sub("_", os.environ.get(HOST_NAME) or host_name()) or "host"
        """The name of this host, as used in file names."""

    def of_host(self, suffix: str, host: str = "") -> str:
        """The path of a file of the supervisor of a host, for example `.ledger`."""
        return "%s/%s%s" % (self.service, host or self.host, suffix)

    def make(self) -> None:
        """Make the run directory, or check that it belongs to the user. Raises CommandError."""
        try:
            for path in (self.run_dir, self.service, self.claims):
                make_directories(path)
                _take_from_others(path)
                check_own_directory(path)
        except UnsafeFile as unsafe:
            raise CommandError(unsafe.sentence + ".", REFUSED) from None
        except OSError as error:
            raise os_error("The run directory %s cannot be made" % self.run_dir, error) from None

    def check(self) -> None:
        """Raise CommandError unless `remote-init` has made the run directory."""
        try:
            check_own_directory(self.service)
        except FileNotFoundError:
            text = "The run directory %s was not made on this host: remote-init has to come first." % self.run_dir
            raise CommandError(text, ABSENT) from None
        except UnsafeFile as unsafe:
            raise CommandError(unsafe.sentence + ".", REFUSED) from None
        except OSError as error:
            raise os_error("The run directory %s cannot be used" % self.run_dir, error) from None

    def log_directory(self) -> str:
        """The log directory of the last start of the run, relative to the run directory."""
        try:
            return os.readlink(self.log)
        except OSError as error:
            raise os_error("The link %s to the log directory cannot be read" % self.log, error) from None

    def log_directories(self) -> List[str]:
        """All log directories, absolute, the one in use first and then the newest first."""
        found = sorted((name for name in os.listdir(self.run_dir) if name.startswith("log.")), reverse=True)
        try:
            now = os.readlink(self.log)
            found = [now] + [name for name in found if name != now]
        except OSError:
            pass
        return ["%s/%s" % (self.run_dir, name) for name in found]

    def ledgers(self) -> List[str]:
        """The names of all ledgers of this run: one for each host, and one for the batch system."""
        names = [name for name in os.listdir(self.service) if name.endswith(LEDGER_SUFFIX)]
        return sorted(name[: -len(LEDGER_SUFFIX)] for name in names)

    def claim(self, id: str) -> str:
        return "%s/%s" % (self.claims, id)

    def is_made_by(self, instance: str) -> bool:
        """Whether the run directory belongs to this run, or to none yet."""
        before = read_text(self.instance)
        return before is None or before.strip() == instance


def make_directories(path: str) -> None:
    """Make a directory and its parents, all for their owner alone. Raises OSError."""
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        make_directories(os.path.dirname(path))
        make_directories(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def _take_from_others(path: str) -> None:
    """Make a directory of the user private. A manager that shares the file system may have made it."""
    status = os.stat(path)
    if status.st_uid == os.geteuid() and status.st_mode & 0o077:
        os.chmod(path, 0o700)


def is_id(id: object) -> bool:
    """Whether this can be the id of an attempt, which is also the name of its claim."""
    return isinstance(id, str) and _ID.match(id) is not None


def check_relative(path: object, what: str) -> str:
    """A path from a request that must stay below a directory of the run. Raises CommandError."""
    if not isinstance(path, str) or not path or path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise CommandError("%r is not a %s: it has to be a path below the run directory." % (path, what), REFUSED)
    return path


def read_text(path: str) -> Optional[str]:
    """The content of a small file of our own; None when there is none. Raises CommandError."""
    try:
        return read_own(path, MOST_BYTES).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except UnsafeFile as unsafe:
        raise CommandError(unsafe.sentence + ".") from None


def write_text(path: str, text: str) -> None:
    """Replace a small file atomically. Only its owner can read it."""
    new = "%s.new-%d" % (path, os.getpid())
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        os.rename(new, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise CannotWrite(str(os_error("The file %s cannot be written" % path, error))) from None


def write_changed(path: str, text: str) -> None:
    """Replace a small file unless it has this content already, as it may on a full disk."""
    if read_text(path) != text:
        write_text(path, text)


def write_number(path: str, number: int) -> None:
    """Replace a file that holds a number, which only grows. A full disk has no room for a second file: then the number
    is written over the one before it."""
    text = "%d\n" % number
    try:
        write_text(path, text)
    except CannotWrite as cannot_write:
        try:
            descriptor = open_own(path, os.O_WRONLY)
            try:
                write_all(descriptor, text.encode("ascii"))
            finally:
                os.close(descriptor)
        except OSError:
            raise cannot_write from None


def remove(path: str) -> None:
    """Remove a file, a link or a socket, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise os_error("%s cannot be removed" % path, error) from None


def is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
