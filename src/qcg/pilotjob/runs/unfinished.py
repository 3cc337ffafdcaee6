"""Unfinished jobs of a run, and whether it has jobs at all, read from its registry."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.metadata import BATCH_SYSTEM, NODES_OF_ALLOCATION, OPTIONS, DamagedMetadata
from qcg.pilotjob.journal.registry_files import FILE_NAME
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.runs.resume_hint import resume_command


class UnfinishedRun(NamedTuple):
    """A run without a manager and with unfinished jobs."""

    run_dir: Path
    unfinished: int
    """Number of unfinished jobs."""
    allocation: str = ""
    """The allocation that its manager used; empty without one."""
    batch_system: str = ""
    """Name of the batch system of the allocation."""
    serves: bool = False
    """Whether the manager served clients until `qcg-pm finish`."""
    only_held: bool = False
    """Whether only held jobs, and jobs that wait for them, are left."""

    def resume_command(self, *, serves: bool | None = None) -> str:
        """The commands that resume the run. `serves`: overrides whether clients are served again."""
        serves = self.serves if serves is None else serves
        return resume_command(self.run_dir, self.allocation, self.batch_system, serves=serves, release=self.only_held)

    def __str__(self) -> str:
        jobs = pluralize(self.unfinished, "job")
        go_on = self.resume_command(serves=False)
        return f"{self.run_dir} was left by its manager with {jobs} not ended; continue with {go_on}"


def read_unfinished(run_dir: Path) -> UnfinishedRun:
    """The unfinished jobs of a run; none when its registry cannot be read."""
    from qcg.pilotjob.journal.held_jobs import HeldJobs  # here: a manager loads this module before its first job

    try:
        with snapshot(run_dir / FILE_NAME, whole=False) as connection:
            allocation, system = NODES_OF_ALLOCATION.read(connection), BATCH_SYSTEM.read(connection)
            left, only_held = queries.unfinished(connection), HeldJobs(connection).are_all_left()
            return UnfinishedRun(run_dir, left, allocation, system, _serves(connection), only_held)
    except (JournalError, OSError):
        return UnfinishedRun(run_dir, 0)


def _serves(connection: sqlite3.Connection) -> bool:
    try:
        options = OPTIONS.read(connection)
    except DamagedMetadata:
        return False
    return options is not None and options.net and not options.wait


def count_unfinished(run_dir: Path) -> int:
    """Number of unfinished jobs in the registry; 0 when it cannot be read."""
    try:
        with snapshot(run_dir / FILE_NAME, whole=False) as connection:
            return queries.unfinished(connection)
    except (JournalError, OSError):
        return 0


def has_jobs(run_dir: Path) -> bool:
    """Whether the registry has a job; False when it cannot be read."""
    try:
        with snapshot(run_dir / FILE_NAME, whole=False) as connection:
            return queries.has_jobs(connection)
    except (JournalError, OSError):
        return False


def has_no_jobs(run_dir: Path) -> bool:
    """Whether the registry has never had a job; False when it cannot be read."""
    try:
        with snapshot(run_dir / FILE_NAME, whole=False) as connection:
            return not queries.has_jobs(connection)
    except (JournalError, OSError):
        return False
