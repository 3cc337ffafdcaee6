"""The submissions of a working directory: which batch jobs were submitted for its runs, and which are still queued."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm_jobs import JobView, look
from qcg.pilotjob.host.safe_open import check_own_directory
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.runs.chain_state import read_books, read_note
from qcg.pilotjob.runs.rundir import PREFIX

DIRECTORY = ".qcgpjm-sbatch-"
"""Prefix of a submission directory, which holds the batch script and the state of the allocations of one submission."""
SUBMISSION_FILE = "submission.json"
MOST_QUERIED = 5
"""The newest submissions of a directory, about which the batch system is asked."""
SHORT_PATIENCE = 10.0
"""Seconds that the batch system has to answer when its answer only adds to a message."""


class Submission(Struct, frozen=True):
    """One submission of a run. `batch/` writes more fields to the same file."""

    job: str
    """The batch system's id of the first allocation."""
    run_dir: str


def submissions_of(run_dir: Path) -> Iterator[tuple[Path, Submission]]:
    """The submission directories of this run, the oldest first, with their contents."""
    for directory in _candidates(run_dir):
        if not os.path.lexists(directory):
            return
        if not any(_own([directory])):
            continue  # another user's: its contents would become options of a batch job
        submission = read_note(directory, SUBMISSION_FILE, Submission)
        # The name of another run may end in a number, too.
        if submission is not None and submission.run_dir == str(run_dir):
            yield directory, submission


def free_directory(run_dir: Path) -> Path:
    """The directory for the next submission of this run. It does not exist yet."""
    return next(directory for directory in _candidates(run_dir) if not os.path.lexists(directory))


def jobs_under_way(run_dir: Path, environ: Mapping[str, str]) -> list[JobView]:
    """Batch jobs of this run that have not ended. Raises BatchError when the batch system does not answer."""
    found = []
    for directory, submission in submissions_of(run_dir):
        books = read_books(directory)
        if books.exit_code is not None:
            continue
        for job in dict.fromkeys([submission.job, *books.allocations]):
            seen = look(job, environ)
            if seen is not None and not seen.is_over:
                found.append(seen)
    return found


def waiting_in(wd: Path, environ: Mapping[str, str]) -> list[str]:
    """Sentences about runs of this working directory that were submitted and have not started."""
    found = []
    try:
        directories = sorted(_own(wd.glob(f"{DIRECTORY}*")), key=lambda path: -path.stat().st_mtime_ns)
    except OSError:
        return []
    for directory in directories[:MOST_QUERIED]:
        try:
            submission = read_note(directory, SUBMISSION_FILE, Submission)
            if submission is None or Path(submission.run_dir, FILE_NAME).exists():
                continue
            seen = look(submission.job, environ, SHORT_PATIENCE)
        except BatchError as error:
            found.append(f"What was submitted from {directory} is not known: {error}.")
            continue
        name = Path(submission.run_dir).name.removeprefix(PREFIX)
        if seen is None:
            found.append(f"Run {name} was submitted as Slurm job {submission.job}, which Slurm knows no more.")
        else:
            why = f", {seen.reason}" if seen.reason != "None" else ""
            found.append(
                f"Run {name} was submitted as Slurm job {seen.id} ({seen.state}{why}), and has not begun."
                f" {seen.hopeless}".rstrip()
            )
    return found


def _own(directories: Iterable[Path]) -> Iterator[Path]:
    """Only the caller's own directories: in a shared directory anybody may have created others."""
    for directory in directories:
        try:
            check_own_directory(directory)
        except OSError:
            continue
        yield directory


def _candidates(run_dir: Path) -> Iterator[Path]:
    name = DIRECTORY + run_dir.name.removeprefix(PREFIX)
    yield run_dir.with_name(name)
    for number in range(2, 1000):
        yield run_dir.with_name(f"{name}.{number}")
