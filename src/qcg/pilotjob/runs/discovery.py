"""Finds the runs of a directory: live runs, and runs with unfinished jobs."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import struct
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from qcg.pilotjob.agent.pidfile import is_alive as is_at_work
from qcg.pilotjob.agent.pidfile import read_agent_pid
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import AllocationState
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.registry import batch_system, system_in_use
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_directory, open_own
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.metadata import (
    BATCH_SYSTEM,
    NODES_OF_ALLOCATION,
    OPTIONS,
    STARTED_IN_ALLOCATION,
    DamagedMetadata,
)
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.runs.guard import is_alive
from qcg.pilotjob.runs.resume_hint import how_to_go_on
from qcg.pilotjob.runs.rundir import PREFIX
from qcg.pilotjob.runs.submissions import waiting_in
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import Contact, ContactError

MOST_LOOKED_AT = 20
"""Most runs of a directory that are examined, the newest first."""
MOST_NAMED = 3
"""Most unfinished runs, or runs of other users, that a message names."""
_FLOCK = "hhqqi"
"""`struct flock`: type, whence, start, length, pid."""


class RunsError(Exception):
    """There is no run at this path, or it cannot be read; the message says which."""


class ForeignRunError(RunsError):
    """The run belongs to another user, or other users can write to it."""


class Left(NamedTuple):
    """A run without a manager, whose jobs have not all ended."""

    run_dir: Path
    unfinished: int
    allocation: str = ""
    """The allocation whose nodes its manager had."""
    batch_system: str = ""
    """Name of the batch system of the allocation."""
    serves: bool = False
    """The manager served clients until it was told to finish."""

    def __str__(self) -> str:
        jobs = "1 job" if self.unfinished == 1 else f"{self.unfinished} jobs"
        go_on = how_to_go_on(self.run_dir, self.allocation, self.batch_system)
        return f"{self.run_dir} was left by its manager with {jobs} not ended; go on with {go_on}"


class PassedOver(NamedTuple):
    """A run in a working directory that is not the caller's own."""

    run_dir: Path
    reason: str

    def __str__(self) -> str:
        return f"Passed over {printable(str(self.run_dir))}: {self.reason}."


class Found(NamedTuple):
    """The runs of a directory."""

    own: list[Path]
    """The newest first."""
    passed_over: list[PassedOver]

    def notices(self) -> list[str]:
        """Sentences about skipped runs of other users, at most `MOST_NAMED`."""
        more = len(self.passed_over) - MOST_NAMED
        further = [f"Passed over {more} more that {'is' if more == 1 else 'are'} not yours."] if more > 0 else []
        return [*map(str, self.passed_over[:MOST_NAMED]), *further]


def find_runs(path: Path) -> Found:
    """The run directory at this path, or all run directories in a working directory.

    Only the caller's own runs are found: another user's run would run that user's jobs, or take the caller's requests.
    """
    shown = path.absolute()
    if not path.is_dir():
        what = "is a file" if os.path.lexists(path) else "is not there"
        raise RunsError(f"{shown} {what}; give the directory of a run, or the one that it worked in")
    try:
        reason = why_not_own_run(path)
        if shown.name.startswith(PREFIX) and reason:
            raise ForeignRunError(f"{shown} cannot be used: {reason}; only `qcg-pm report` reads runs of other users")
        names = os.listdir(path)
        # In a directory that is not the caller's own, anybody may have put such a file.
        if shown.name.startswith(PREFIX) or (not reason and (FILE_NAME in names or contact.FILE_NAME in names)):
            return Found([path], [])
        return _runs_in(path, names)
    except OSError as error:
        raise RunsError(f"{shown} cannot be looked at: {os.strerror(error.errno or 0)}") from None


def runs_of(path: Path) -> list[Path]:
    """The caller's own runs, the newest first."""
    return find_runs(path).own


def why_not_own_run(run_dir: Path) -> str:
    """Why a run directory is not the caller's own; empty when it is."""
    try:
        check_own_directory(run_dir)
    except UnsafeFile as unsafe:
        return unsafe.reason
    return ""


def _runs_in(wd: Path, names: list[str]) -> Found:
    found: list[tuple[int, Path]] = []
    passed_over: list[PassedOver] = []
    for name in sorted(names):
        run_dir = wd / name
        if not name.startswith(PREFIX):
            continue
        with suppress(FileNotFoundError):  # it was removed meanwhile
            reason = why_not_own_run(run_dir)
            if not reason:
                found.append((run_dir.stat().st_mtime_ns, run_dir))
            elif run_dir.is_dir() or run_dir.is_symlink():
                passed_over.append(PassedOver(run_dir.absolute(), reason))
    found.sort(key=lambda each: -each[0])
    return Found([run_dir for _, run_dir in found], passed_over)


def with_registry(path: Path) -> Path:
    """The newest run with jobs in a readable registry."""
    found = find_runs(path)
    try:
        readable = [run for run in found.own if FILE_NAME in os.listdir(run)]
        unreadable = ""
    except PermissionError as error:
        readable = [run for run in found.own if os.access(run, os.R_OK | os.X_OK) and FILE_NAME in os.listdir(run)]
        unreadable = f"; {error.filename} cannot be looked at: {os.strerror(error.errno or 0)}"
    if not readable:
        raise RunsError(
            f"There is no run in {path.absolute()}: neither it nor a {PREFIX}* in it has a {FILE_NAME} that can be read"
            f"{unreadable}; give the directory of a run, or the one that it worked in{told_of_waiting(path)}"
            f"{_told_of_passed_over(found)}"
        )
    return newest_with_jobs(readable)


def _told_of_passed_over(found: Found) -> str:
    """Sentences to append to a sentence without its full stop."""
    return "".join(f". {sentence.removesuffix('.')}" for sentence in found.notices())


def newest_with_jobs(runs: list[Path]) -> Path:
    """The first run with jobs, or else the first one. `runs`: the newest first."""
    return next((run for run in runs[:MOST_LOOKED_AT] if len(runs) == 1 or _has_jobs(run)), runs[0])


def _has_jobs(run_dir: Path) -> bool:
    try:
        with snapshot(run_dir / FILE_NAME, whole=False) as connection:
            return queries.has_jobs(connection)
    except (JournalError, OSError):
        return False


def never_had_jobs(run_dir: Path) -> bool:
    """Whether the registry has never had a job; False when it cannot be read."""
    try:
        with snapshot(run_dir / FILE_NAME, whole=False) as connection:
            return not queries.has_jobs(connection)
    except (JournalError, OSError):
        return False


def to_resume(path: Path) -> Path:
    """The run for `--resume`: the newest one with unfinished jobs, or else the newest."""
    try:
        found = find_runs(path)
    except RunsError as error:
        raise UsageError(f"--resume: {error}") from None
    if not found.own:
        further = told_of_waiting(path) + _told_of_passed_over(found)
        whose = "of yours " if found.passed_over else ""
        raise UsageError(
            f"there is no run to resume in {path.absolute()}: no directory {PREFIX}* {whose}is there{further}"
        )
    left = left_runs(path, 1) if len(found.own) > 1 else []
    return left[0].run_dir if left else found.own[0]


def queued_again(wd: Path, file_path: str, id: str | None, environ: Mapping[str, str]) -> Path | None:
    """The run that this allocation had begun with this file, before the batch system queued it again."""
    system = system_in_use(environ)
    allocation = None if system is None else system.current(environ)
    if system is None or allocation is None or not system.restarts(environ):
        return None
    try:
        runs = [run.resolve() for run in runs_of(wd) if id is None or run.name == f"{PREFIX}{id}"]
    except RunsError:
        return None
    mine = [run for run in runs[:MOST_LOOKED_AT] if _began_with(run, allocation.id, file_path)]
    return next((run for run in mine if unfinished(run)), mine[0] if mine else None)


def _began_with(run_dir: Path, job_id: str, file_path: str) -> bool:
    try:
        with snapshot(run_dir / FILE_NAME, whole=False) as connection:
            options = OPTIONS.read(connection)
            same_job = STARTED_IN_ALLOCATION.read(connection) == job_id
        return same_job and options is not None and options.file_path == file_path
    except (JournalError, OSError):
        return False


def left_runs(path: Path, most: int = MOST_NAMED, besides: Path | None = None) -> list[Left]:
    """Runs with unfinished jobs and no manager, the newest first, at most `most`, because registries may be large. Runs
    that cannot be read are skipped."""
    try:
        runs = [run.absolute() for run in runs_of(path)[:MOST_LOOKED_AT]]
    except RunsError:
        return []
    looked_at = (look_at_left(run) for run in runs if run != besides and not has_manager(run))
    return list(islice((left for left in looked_at if left.unfinished), most))


def in_same_directory(run_dir: Path) -> list[str]:
    """A sentence for each other run that has a manager in the same working directory."""
    try:
        runs = [run.absolute() for run in runs_of(run_dir.parent)[:MOST_LOOKED_AT]]
    except RunsError:
        return []
    return [
        f"Another run works in the same directory: {run}. Output files with relative paths are the same files for both"
        " runs; with --wd DIRECTORY a run gets a directory of its own."
        for run in runs
        if run.name != run_dir.name and has_manager(run)
    ]


def unfinished(run_dir: Path) -> int:
    """Number of unfinished jobs in the registry; 0 when it cannot be read."""
    return look_at_left(run_dir).unfinished


def look_at_left(run_dir: Path) -> Left:
    try:
        with snapshot(run_dir / FILE_NAME, whole=False) as connection:
            allocation, system = NODES_OF_ALLOCATION.read(connection), BATCH_SYSTEM.read(connection)
            return Left(run_dir, queries.unfinished(connection), allocation, system, _serves(connection))
    except (JournalError, OSError):
        return Left(run_dir, 0)


def _serves(connection: sqlite3.Connection) -> bool:
    try:
        options = OPTIONS.read(connection)
    except DamagedMetadata:
        return False
    return options is not None and options.net and not options.wait


def has_manager(run_dir: Path) -> bool:
    try:
        found = contact.read(run_dir)
        return is_there(run_dir, found) if found is not None else holder_of(run_dir) is not None
    except (ContactError, OSError):
        return False


def is_there(run_dir: Path, found: Contact) -> bool:
    try:
        return is_alive(run_dir, found)
    except OSError:  # on another host, and the directory cannot be written to see how late it is there
        return False


def holder_of(run_dir: Path) -> int | None:
    """The pid of the process that has the registry open, 0 where it cannot be told; None when there is none.

    A manager keeps its registry locked for as long as it lives, whatever becomes of its contact file.
    """
    try:
        descriptor = open_own(run_dir / FILE_NAME)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


def standing(run: Path) -> str:
    """Describes a run without a manager, and other unfinished or submitted runs beside it."""
    run = run.absolute()
    try:
        found = contact.read(run)
        became = "has died" if found is not None and found.pid else "has ended"
    except ContactError as error:
        became = f"cannot be found ({error})"
    sentence = f"No manager is at work in {run.parent}: that of the newest run, {run}, {became}."
    left = look_at_left(run)
    if left.unfinished:
        sentence += f" {_what_is_left(left)}"
    else:
        sentence += f" To go on with it, `qcg-pm-service --net --resume {run}`."
    return " ".join([sentence, *_others(run)])


def afterword(run: Path) -> str:
    """The same for read-only commands, in short when all jobs have ended."""
    run = run.absolute()
    if unfinished(run):
        return standing(run)
    return " ".join(["Its manager has ended, and all jobs have.", *_others(run)])


def _what_is_left(left: Left) -> str:
    were = "1 job has" if left.unfinished == 1 else f"{left.unfinished} jobs have"
    at_work = has_agents(left.run_dir)
    runs = "what runs may go on" if at_work is None else "what runs goes on" if at_work else "nothing runs any more"
    serve = "" if left.allocation else f" (or, to serve it again, `qcg-pm-service --net --resume {left.run_dir}`)"
    go_on = how_to_go_on(left.run_dir, left.allocation, left.batch_system)
    return f"As far as it knew, {were} not ended: {runs}, and {go_on} goes on with the rest{serve}."


def _others(run: Path) -> list[str]:
    """Sentences about other runs of the directory that can be resumed or wait in the queue."""
    return [*(f"Also, {left}." for left in left_runs(run.parent, besides=run)), *waiting_runs(run.parent)]


def has_agents(run_dir: Path) -> bool | None:
    """Whether an agent of a run without a manager is running; None when that is not known."""
    known: bool | None = False
    asked: dict[AllocationRef, bool | None] = {}
    for path in sorted(run_dir.glob("agent-*.json")):
        found = read_agent_pid(run_dir, path.stem.removeprefix("agent-"))
        if found is None:
            continue
        allocation = AllocationRef(found.allocation, found.cluster, found.batch_system)
        if found.host == host_name():
            at_work: bool | None = is_at_work(found)
        elif allocation in asked:
            continue
        else:
            at_work = asked[allocation] = _is_at_work(allocation)
        if at_work:
            return True
        known = None if at_work is None else known
    return known


def _is_at_work(allocation: AllocationRef) -> bool | None:
    if not allocation.id:
        return None
    try:
        return batch_system(allocation.system).state_of(allocation, os.environ) is not AllocationState.OVER
    except ClusterError:
        return None


def waiting_runs(wd: Path) -> list[str]:
    """Sentences about runs that were submitted to a batch system, and have not begun."""
    return waiting_in(wd, os.environ)


def told_of_waiting(wd: Path) -> str:
    """The same sentences, to append to a sentence without its full stop."""
    return "".join(f". {sentence.removesuffix('.')}" for sentence in waiting_runs(wd))


def without_contact(run: Path, holder: int) -> str:
    """The message for a running manager without a contact file."""
    who = f"a manager (pid {holder})" if holder else "a manager"
    kill = f"`kill {holder}`" if holder else "SIGTERM"
    return (
        f"{who} is at work in {run.absolute()}, but there is no {contact.FILE_NAME}, which has its address and keys. If"
        " it has just been started, try again in a few seconds. If the file was removed, nobody can talk to it any"
        f" more: {kill} ends it, and --resume continues with its jobs"
    )
