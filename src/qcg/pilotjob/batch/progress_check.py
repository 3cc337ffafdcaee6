"""Whether an allocation brought its run forward, read from the registry."""

from __future__ import annotations

from pathlib import Path

from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.metadata import FAILURE_LIMIT_REACHED, FINISH_REQUESTED
from qcg.pilotjob.journal.saved_run import unfinished_jobs
from qcg.pilotjob.journal.snapshot import snapshot


def progress_of(run_dir: Path) -> tuple[int, int] | None:
    """How many attempts were started and how many jobs have ended; None when the registry cannot be read."""
    if not (run_dir / FILE_NAME).exists():
        return 0, 0
    try:
        with snapshot(run_dir / FILE_NAME) as connection:
            return queries.starts_and_ends(connection)
    except JournalError:
        return None


def why_to_end(run_dir: Path) -> str:
    """Why the user wants no further allocation, as a clause; empty if the run is to continue."""
    if not (run_dir / FILE_NAME).exists():
        return ""
    try:
        with snapshot(run_dir / FILE_NAME) as connection:
            if FINISH_REQUESTED.read(connection):
                return "The run was told to finish"
            return "Too many jobs have failed (--stop-after)" if FAILURE_LIMIT_REACHED.read(connection) else ""
    except JournalError:
        return ""


def is_too_long(run_dir: Path, seconds: float | None) -> bool:
    """Whether an unfinished job takes longer than a whole allocation."""
    longest = _longest(run_dir)
    return longest is not None and seconds is not None and (longest.wall_time or 0) >= seconds


def longest_of(run_dir: Path) -> str:
    """A sentence about the unfinished job with the longest wall time; empty where jobs have none."""
    longest = _longest(run_dir)
    if longest is None or not longest.wall_time:
        return ""
    return (
        f"Of the remaining jobs, {longest.name!r} has the longest wall time (wt), {longest.wall_time:g} s: the"
        " time of the allocation, less its grace, has to be longer. "
    )


def _longest(run_dir: Path) -> JobDescription | None:
    try:
        with snapshot(run_dir / FILE_NAME) as connection:
            jobs = [job.description for job in unfinished_jobs(connection)]
    except JournalError:
        return None
    return max(jobs, key=lambda job: job.wall_time or 0, default=None)
