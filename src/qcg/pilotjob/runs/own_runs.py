"""The run directories of the caller in a working directory. Loads little: every command begins with it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_directory
from qcg.pilotjob.journal.registry_files import FILE_NAME
from qcg.pilotjob.runs.rundir import PREFIX
from qcg.pilotjob.wire import contact

MOST_NAMED = 3
"""Most unfinished runs, or runs of other users, that a message names."""


class RunsError(Exception):
    """There is no run at this path, or it cannot be read; the message says which."""


class ForeignRunError(RunsError):
    """The run belongs to another user, or other users can write to it."""


class SkippedRun(NamedTuple):
    """A run of another user, which is not used."""

    run_dir: Path
    reason: str

    def __str__(self) -> str:
        return f"Skipped {printable(str(self.run_dir))}: {self.reason}."


class FoundRuns(NamedTuple):
    """The runs of a directory."""

    own: list[Path]
    """The newest first."""
    skipped: list[SkippedRun]

    def notices(self) -> list[str]:
        """Sentences about skipped runs, at most `MOST_NAMED` with their paths."""
        more = len(self.skipped) - MOST_NAMED
        further = [f"Skipped {pluralize(more, 'more run')} of other users."] if more > 0 else []
        return [*map(str, self.skipped[:MOST_NAMED]), *further]


def find_runs(path: Path) -> FoundRuns:
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
            return FoundRuns([path], [])
        return _runs_in(path, names)
    except OSError as error:
        raise RunsError(f"{shown} cannot be read: {os.strerror(error.errno or 0)}") from None


def own_runs(path: Path) -> list[Path]:
    """The caller's own runs, the newest first."""
    return find_runs(path).own


def why_not_own_run(run_dir: Path) -> str:
    """Why a run directory is not the caller's own; empty when it is."""
    try:
        check_own_directory(run_dir)
    except UnsafeFile as unsafe:
        return unsafe.reason
    return ""


def _runs_in(wd: Path, names: list[str]) -> FoundRuns:
    found: list[tuple[int, Path]] = []
    skipped: list[SkippedRun] = []
    for name in sorted(names):
        run_dir = wd / name
        if not name.startswith(PREFIX):
            continue
        with suppress(FileNotFoundError):  # removed meanwhile
            reason = why_not_own_run(run_dir)
            if not reason:
                found.append((run_dir.stat().st_mtime_ns, run_dir))
            elif run_dir.is_dir() or run_dir.is_symlink():
                skipped.append(SkippedRun(run_dir.absolute(), reason))
    found.sort(key=lambda each: -each[0])
    return FoundRuns([run_dir for _, run_dir in found], skipped)
