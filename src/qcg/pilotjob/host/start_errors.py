"""Why a process could not be started, as messages for users. Computed only after an attempt has failed."""

import errno
import math
import os
import time
from typing import Dict, List, Optional

from qcg.pilotjob.host.records import Launch

CAPACITY_TIMEOUT = 10.0
"""Seconds to wait for capacity while no other job runs: other processes of this host may end, too."""
RETRY = 0.5
"""Seconds between two attempts to start a job."""
_LONGEST_ARGUMENT = 128 * 1024


class Unstartable(Exception):
    """The launch cannot be carried out; the text says what is missing."""


class NoCapacity(Unstartable):
    """Not now: there are too many processes, or too little memory."""


class StartDeadlinePassed(Unstartable):
    """Not now: the manager may take the job for lost and start it on another node."""


class ProcessCapacity:
    """Whether this host can have another process, after a start has failed because it could not."""

    def __init__(self) -> None:
        self.retry_at: Optional[float] = None
        """When to try the next start, in monotonic seconds."""
        self._lacking_since = 0.0
        self._asked_at = -math.inf

    def start_again(self) -> None:
        """Queued jobs are started now."""
        self.retry_at = None

    def process_started(self) -> None:
        """A process could be started."""
        self._asked_at = -math.inf

    def may_return(self, others_run: bool) -> bool:
        """A process could not be started. Returns whether to try again later."""
        now = time.monotonic()
        if others_run or now - self._asked_at > CAPACITY_TIMEOUT:
            self._lacking_since = now
        self._asked_at = now
        if now - self._lacking_since >= CAPACITY_TIMEOUT:
            return False
        self.retry_at = now + RETRY
        return True


def not_passable(launch: Launch, error: ValueError) -> str:
    """A value that no program can be given."""
    for what, texts in (
        ("argument", launch.argv),
        ("variable name", list(launch.env)),
        ("variable value", list(launch.env.values())),
        ("path", [path for path in (launch.wd, launch.stdin, launch.stdout, launch.stderr) if path]),
    ):
        for text in texts:
            if "\0" in text:
                return "The %s %r holds a zero character, which no program can be given." % (what, text)
    for name in launch.env:
        if not name or "=" in name:
            return "%r is not a name for an environment variable." % name
    return "Something in the job cannot be passed to a program: %s." % error


def no_stdin(path: str, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "The stdin file %s does not exist (%s)." % (path, _absolute(path))
    return "The stdin file %s cannot be opened: %s." % (path, error.strerror)


def no_output(stream: str, path: str, error: OSError) -> str:
    if error.errno == errno.ENXIO:
        return "The %s file %s is a named pipe that nobody reads." % (stream, path)
    if error.errno == errno.EISDIR:
        return "The %s file %s is a directory." % (stream, path)
    return "The %s file %s cannot be opened: %s." % (stream, path, error.strerror)


def not_found(name: bytes, path: bytes, not_executable: bytes) -> str:
    if not_executable:
        return "%s is not executable (chmod +x would make it so), and no other %s is on PATH." % (
            os.fsdecode(not_executable),
            os.fsdecode(name),
        )
    if _hint(name):
        return 'The program "%s" is not found on PATH%s.' % (os.fsdecode(name), _hint(name))
    shown = os.fsdecode(path)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return "The program %s is not found on PATH (%s)." % (os.fsdecode(name), shown)


def refusal(error: OSError, program: bytes, argv: List[bytes], environment: Dict[bytes, bytes], wd: str) -> Unstartable:
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        text = "This host has no room for another process: %s (see ulimit -u and its memory)." % error.strerror
        return NoCapacity(text)
    return Unstartable(_not_executable(error, program, argv, environment, wd))


def _not_executable(error: OSError, program: bytes, argv: List[bytes], environment: Dict[bytes, bytes], wd: str) -> str:
    """Why `program` was not executed in the current directory, which is `wd`."""
    name = os.fsdecode(program)
    if not program.startswith(b"/"):
        name = "%s (in %s)" % (name, wd)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if not os.path.lexists(program):
            return "The program %s does not exist%s." % (name, _hint(program))
        return "The program %s exists, but %s does not." % (name, _interpreter(program))
    if error.errno in (errno.EACCES, errno.EPERM):
        if os.path.isdir(program):
            return "%s is a directory, not a program." % name
        if not os.access(program, os.X_OK):
            return "%s is not executable (chmod +x would make it so)." % name
        return "%s must not be executed: %s (by the file system, or for %s)." % (
            name,
            error.strerror,
            _interpreter(program),
        )
    if error.errno == errno.ENOEXEC:
        return "%s is neither a program for this machine nor a script with a #! line." % name
    if error.errno == errno.E2BIG:
        return _too_long(argv, environment)
    return "%s cannot be started: %s." % (name, error.strerror)


def _too_long(argv: List[bytes], environment: Dict[bytes, bytes]) -> str:
    longest = max(argv, key=len)
    if len(longest) >= _LONGEST_ARGUMENT:
        return "An argument of %d bytes is longer than the %d that a program can be given; write it to a file." % (
            len(longest),
            _LONGEST_ARGUMENT - 1,
        )
    size = sum(map(len, argv)) + sum(len(name) + len(value) + 1 for name, value in environment.items())
    return (
        "Arguments and environment together have %d bytes, more than a program can be given (at most %d in all, "
        "and %d for each); write long values to a file." % (size, os.sysconf("SC_ARG_MAX"), _LONGEST_ARGUMENT - 1)
    )


def _hint(program: bytes) -> str:
    """A shell command in place of a program is the most common mistake."""
    if b" " not in program.strip():
        return ""
    return "; put a shell command into script, or the program into exec and its arguments into args"


def _interpreter(program: bytes) -> str:
    try:
        with open(program, "rb") as file:
            line = file.readline(300)
    except OSError:
        line = b""
    if line.startswith(b"#!") and line[2:].split():
        return "the interpreter %s that its first line names" % os.fsdecode(line[2:].split()[0])
    return "the loader that it needs"


def _absolute(path: str) -> str:
    return os.path.abspath(path)
