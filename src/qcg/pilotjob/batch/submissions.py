"""What was submitted for the runs of a directory, and whether Slurm still has it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from qcg.pilotjob.batch import slurm
from qcg.pilotjob.batch.chain_state import read_books, read_note, write_note
from qcg.pilotjob.batch.errors import BatchError
from qcg.pilotjob.batch.slurm import JobView
from qcg.pilotjob.batch.spec import Shape
from qcg.pilotjob.host.safe_open import check_own_directory
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.runs.rundir import PREFIX

DIRECTORY = ".qcgpjm-sbatch-"
"""What holds the batch script and notes of the allocations of one submission, in the working directory."""
MOST_ASKED_FOR = 5
"""Submissions of a directory of which Slurm is asked, the newest."""
SHORT_PATIENCE = 10.0
"""Seconds for Slurm to answer, when that is only told besides."""
_FILE = "submission.json"


class Submission(Struct, frozen=True):
    job: str
    """Slurm's id of the first allocation."""
    run_dir: str
    shape: Shape


def write_submission(directory: Path, submission: Submission) -> None:
    write_note(directory, _FILE, submission)


def read_submission(directory: Path) -> Submission | None:
    return read_note(directory, _FILE, Submission)


def free_directory(run_dir: Path) -> Path:
    """For one more submission of this run."""
    return next(directory for directory in _candidates(run_dir) if not os.path.lexists(directory))


def last_shape(run_dir: Path) -> Shape | None:
    """Of the allocations that this run had."""
    shapes = [submission.shape for _, submission in _submissions(run_dir)]
    return shapes[-1] if shapes else None


def refuse_while_under_way(run_dir: Path, environ: Mapping[str, str]) -> None:
    """A run that still has jobs of Slurm is not to get more: they would be in each other's way."""
    jobs = jobs_under_way(run_dir, environ)
    following = [seen for seen in jobs if seen.state == "PENDING"]
    holding = [seen for seen in jobs if seen.state != "PENDING"]
    if not jobs:
        return
    said = [f"Slurm job {seen.id} still holds {seen.nodes or 'nodes'} for this run" for seen in holding]
    said += [f"Slurm job {seen.id} ({seen.state}) will go on with this run" for seen in following]
    ids = " ".join(seen.id for seen in [*holding, *following])
    raise BatchError(f"{', and '.join(said)}; wait for that, or `scancel {ids}` first. Nothing was submitted")


def jobs_under_way(run_dir: Path, environ: Mapping[str, str]) -> list[JobView]:
    """Slurm jobs of this run that have not ended. Raises BatchError when Slurm cannot be asked."""
    found = []
    for directory, submission in _submissions(run_dir):
        books = read_books(directory)
        if books.exit_code is not None:
            continue
        for job in dict.fromkeys([submission.job, *books.allocations]):
            seen = slurm.look(job, environ)
            if seen is not None and not seen.is_over:
                found.append(seen)
    return found


def submission_directories(run_dir: Path) -> list[Path]:
    """Where the batch scripts of this run are."""
    return [directory for directory, _ in _submissions(run_dir)]


def waiting_in(wd: Path, environ: Mapping[str, str]) -> list[str]:
    """Sentences about runs of this working directory that have been submitted, and have not begun."""
    found = []
    try:
        directories = sorted(_own(wd.glob(f"{DIRECTORY}*")), key=lambda path: -path.stat().st_mtime_ns)
    except OSError:
        return []
    for directory in directories[:MOST_ASKED_FOR]:
        try:
            submission = read_submission(directory)
            if submission is None or Path(submission.run_dir, FILE_NAME).exists():
                continue
            seen = slurm.look(submission.job, environ, SHORT_PATIENCE)
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


def _submissions(run_dir: Path) -> Iterator[tuple[Path, Submission]]:
    for directory in _candidates(run_dir):
        if not os.path.lexists(directory):
            return
        if not any(_own([directory])):
            continue  # another user's: what it says would become options of a batch job
        submission = read_submission(directory)
        # Not that of another run, whose name ends in a number.
        if submission is not None and submission.run_dir == str(run_dir):
            yield directory, submission


def _own(directories: Iterable[Path]) -> Iterator[Path]:
    """Only the caller's own directories: in a shared one anybody may have put others."""
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
