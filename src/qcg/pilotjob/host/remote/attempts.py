"""The directories of attempts: set up before a start, and kept up to date with the ledger.

log.STAMP/job/POINT/NAME/NN/{job, job.out, job.err, job.status}
log.STAMP/job/POINT/NAME/NN -> 02       the link is literally named NN and points to the latest attempt
"""

import contextlib
import errno
import os
from functools import lru_cache
from shlex import quote
from typing import Callable, Dict, List, NamedTuple, Tuple

from qcg.pilotjob.host.ledger import Ledger, OpenStart
from qcg.pilotjob.host.process_tree import boot_id, read_process
from qcg.pilotjob.host.records import Ended, Launch, RecordBody
from qcg.pilotjob.host.remote import status_file
from qcg.pilotjob.host.remote.claims import read_claim
from qcg.pilotjob.host.remote.environment import ATTEMPT_DIRECTORY, REMOTE_COMMAND, REMOTE_RUN
from qcg.pilotjob.host.remote.files import write_all
from qcg.pilotjob.host.remote.layout import Layout, make_directories
from qcg.pilotjob.host.start_errors import Unstartable

SCRIPT = "job"
STDOUT = "job.out"
STDERR = "job.err"
LATEST = "NN"
LONGEST_LEDGER = 1 << 20
"""Bytes above which a ledger is compacted: commands read all of it."""

_NO_DIRECTORY = "The directory %s of the attempt cannot be made: %s."
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_quoted = lru_cache(maxsize=4096)(quote)


class Attempt(NamedTuple):
    directory: str
    """Absolute path; empty when the launch names none."""
    submitted: float


class Attempts:
    """Sets up the directories of attempts on this host."""

    def __init__(self, layout: Layout, instance: str, command: str, batch_system: str = "background") -> None:
        """`command`: the far side as a command line, for jobs that send messages."""
        self._layout = layout
        self._instance = instance
        self._command = command
        self._batch_system = batch_system
        self._boot = boot_id()

    def complete(self, launch: Launch, attempt: Attempt) -> Launch:
        """The launch with absolute paths, files for its output and the variables of the far side."""
        env = dict(launch.env)
        env[REMOTE_COMMAND] = self._command
        env[REMOTE_RUN] = self._layout.run_dir
        stdout, stderr = launch.stdout, launch.stderr
        if attempt.directory:
            env[ATTEMPT_DIRECTORY] = attempt.directory
            stdout = "%s/%s" % (attempt.directory, STDOUT) if stdout is None else stdout
            stderr = "%s/%s" % (attempt.directory, STDERR) if stderr is None else stderr
        return launch._replace(
            env=env,
            wd=self._absolute(launch.wd),
            stdin=None if launch.stdin is None else self._absolute(launch.stdin),
            stdout=None if stdout is None else self._absolute(stdout),
            stderr=None if stderr is None else self._absolute(stderr),
            output="",
        )

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") else "%s/%s" % (self._layout.run_dir, path)

    def set_up(self, launch: Launch, attempt: Attempt) -> None:
        """Make the directory of an attempt with its files. Raises Unstartable."""
        if not attempt.directory:
            return
        with contextlib.suppress(OSError, ValueError):
            # Most often it is new, and the start of the job makes it with more steps, or tells why it cannot be made.
            os.mkdir(launch.wd)
        try:
            make_attempt_directory(attempt.directory)
            _write_new(attempt.directory + "/" + SCRIPT, _script(launch), 0o700)
            for name, path in ((STDOUT, launch.stdout), (STDERR, launch.stderr)):
                place = attempt.directory + "/" + name
                if path is not None and path != place:
                    os.symlink(path, place)  # so that logs are found, also where the job names their files
            lines = [
                ("ATTEMPT", launch.id),
                ("RUN", self._instance),
                ("HOST", self._layout.host),
                ("BOOT", self._boot),
                ("BATCH_SYSTEM", self._batch_system),
                ("SUBMITTED", status_file.timestamp(attempt.submitted)),
            ]
            _write_new("%s/%s" % (attempt.directory, status_file.NAME), status_file.format_lines(lines), 0o600)
        except ValueError as error:
            raise Unstartable(
                "The directory %r of the attempt cannot be made: %s." % (attempt.directory, error)
            ) from None
        except OSError as error:
            text = "The directory %s of the attempt cannot be made: %s."
            raise Unstartable(text % (attempt.directory, error.strerror)) from None


class AttemptLedger(Ledger):
    """A ledger that also appends starts and ends to the status files of attempts."""

    def __init__(self, path: str, layout: Layout, log: Callable[[str], None]) -> None:
        self._layout = layout
        self._log = log
        self.attempts: Dict[str, Attempt] = {}
        """Attempts that are under way, by id."""
        super().__init__(path, LONGEST_LEDGER)

    def started(self, id: str, start: OpenStart) -> Tuple[int, RecordBody]:
        lines: List[Tuple[str, object]] = [("PID", start.pid), ("STARTED", status_file.timestamp(start.at))]
        ticks = start.since
        if ticks != start.until:
            process = read_process(start.pid)
            ticks = ticks if process is None else process.start_ticks
        lines.insert(1, ("PROCESS_START", ticks))
        self._append(id, lines)
        return super().started(id, start)

    def ended(self, body: Ended) -> Tuple[int, RecordBody]:
        self._append(body.id, status_file.end_lines(body))
        self.attempts.pop(body.id, None)
        return super().ended(body)

    def _append(self, id: str, lines: status_file.Lines) -> None:
        """A status file that cannot be written changes nothing about the job: the ledger has the same."""
        try:
            directory = self._directory(id)
            if directory:
                status_file.append(directory, lines)
        except OSError as error:
            self._log("The status file of attempt %s cannot be written: %s." % (id, error))

    def _directory(self, id: str) -> str:
        attempt = self.attempts.get(id)
        if attempt is None:
            claim = read_claim(self._layout, id)
            attempt = self.attempts[id] = Attempt(claim.directory if claim else "", claim.time if claim else 0.0)
        return attempt.directory


def make_attempt_directory(directory: str) -> None:
    """Make the directory, and let the link NN beside it point to it. Raises OSError.

    A directory that is there belongs to an ended attempt of another job of the same name: it is moved aside."""
    try:
        os.mkdir(directory, 0o700)
    except FileNotFoundError:
        make_directories(os.path.dirname(directory))
        os.mkdir(directory, 0o700)
    except FileExistsError:
        _move_aside(directory)
        os.mkdir(directory, 0o700)
    parent, _, number = directory.rpartition("/")
    link = "%s/%s" % (parent, LATEST)
    try:
        os.symlink(number, link)
    except FileExistsError:
        new = "%s.%d" % (link, os.getpid())
        os.symlink(number, new)
        os.rename(new, link)


def _move_aside(directory: str) -> None:
    for number in range(1, 1000):
        aside = "%s.old-%d" % (directory, number)
        if not os.path.lexists(aside):
            os.rename(directory, aside)
            return
    raise OSError(errno.EEXIST, "too many directories of earlier attempts", directory)


def _write_new(path: str, content: bytes, mode: int) -> None:
    descriptor = os.open(path, _NEW, mode)
    try:
        write_all(descriptor, content)
    finally:
        os.close(descriptor)


def _script(launch: Launch) -> bytes:
    """The launch as a shell script. The job host starts the program itself; users and batch systems read this."""
    lines: List[str] = ["#!/bin/sh", "# Attempt %s" % launch.id]
    lines += ["unset %s" % name for name in launch.unset if name.isidentifier()]
    lines += ["export %s=%s" % (name, _quoted(value)) for name, value in launch.env.items() if name.isidentifier()]
    lines += ["cd %s || exit" % _quoted(launch.wd), "exec " + " ".join([_quoted(word) for word in launch.argv]), ""]
    return "\n".join(lines).encode("utf-8", "surrogateescape")
