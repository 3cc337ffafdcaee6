"""The submissions for the runs of a directory, and the state of their allocations."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path

from msgspec import Struct, field

from qcg.pilotjob.cluster.base import AllocationView, Phase
from qcg.pilotjob.cluster.errors import BatchError, ClusterError
from qcg.pilotjob.cluster.registry import batch_system, queue_of
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.host.safe_open import check_own_directory
from qcg.pilotjob.journal.registry_files import FILE_NAME
from qcg.pilotjob.runs.chain_state import read_chain_state, read_json, write_json
from qcg.pilotjob.runs.rundir import PREFIX

DIRECTORY = ".qcgpjm-alloc-"
"""Prefix of the directory with the batch script and the chain state of one submission, in the working directory."""
EARLIER_DIRECTORY = ".qcgpjm-sbatch-"
"""The prefix in earlier versions."""
MOST_QUERIED = 5
"""Most submissions of a directory for which the batch system is queried, the newest first."""
SHORT_TIMEOUT = 10.0
"""Seconds for the batch system to answer a query that is not essential."""
_FILE = "submission.json"


class Submission(Struct, frozen=True):
    """A batch script that was submitted: the content of `submission.json`."""

    job: str
    """Id of the first allocation."""
    run_dir: str
    spec: AllocationSpec = field(name="shape")
    system: str = ""
    """Name of the batch system; empty in files of earlier versions."""


def write_submission(directory: Path, submission: Submission) -> None:
    write_json(directory, _FILE, submission)


def read_submission(directory: Path) -> Submission | None:
    return read_json(directory, _FILE, Submission)


def free_directory(run_dir: Path) -> Path:
    """A directory for one more submission of this run."""
    return next(directory for directory in _candidates(run_dir, DIRECTORY) if not os.path.lexists(directory))


def last_submission(run_dir: Path) -> Submission | None:
    """The latest submission of this run."""
    return next((submission for _, submission in reversed(list(_submissions(run_dir)))), None)


def recorded_allocations(run_dir: Path) -> list[tuple[str, str]]:
    """The batch system and the id of each allocation that was submitted for this run, in order.

    Raises BatchError when a file cannot be read."""
    return [
        (submission.system, allocation)
        for directory, submission in _submissions(run_dir)
        for allocation in read_chain_state(directory).allocations or [submission.job]
    ]


def refuse_active_allocations(run_dir: Path, environ: Mapping[str, str]) -> None:
    """Refuse to submit a run that still has allocations: a run must not have two managers."""
    views = active_allocations(run_dir, environ)
    if not views:
        return
    holding = [view for view in views if view.phase is not Phase.WAITING]
    following = [view for view in views if view.phase is Phase.WAITING]
    last = last_submission(run_dir)
    system = batch_system(last.system if last else "")
    reasons = [f"{system.label} job {view.id} still holds {view.nodes or 'nodes'} for this run" for view in holding]
    reasons += [f"{system.label} job {view.id} ({view.state}) will continue this run" for view in following]
    cancel = queue_of(system.name).cancel_command(*[view.id for view in [*holding, *following]])
    raise BatchError(f"{', and '.join(reasons)}; wait for that, or `{cancel}` first. Nothing was submitted")


def active_allocations(run_dir: Path, environ: Mapping[str, str]) -> list[AllocationView]:
    """Allocations of this run that have not ended. Raises BatchError when the batch system cannot be queried."""
    found = []
    for directory, submission in _submissions(run_dir):
        chain = read_chain_state(directory)
        if chain.exit_code is not None:
            continue
        queue = queue_of(submission.system)
        for job in dict.fromkeys([submission.job, *chain.allocations]):
            seen = queue.view(job, queue.command_environment(environ))
            if seen is not None and not seen.is_over:
                found.append(seen)
    return found


def submission_directories(run_dir: Path) -> list[Path]:
    """The directories of the submissions of this run."""
    return [directory for directory, _ in _submissions(run_dir)]


def waiting_notices(wd: Path, environ: Mapping[str, str]) -> list[str]:
    """Sentences about runs of this working directory that were submitted and have not started."""
    found = []
    try:
        found_directories = [path for prefix in (EARLIER_DIRECTORY, DIRECTORY) for path in wd.glob(f"{prefix}*")]
        directories = sorted(_own(found_directories), key=lambda path: -path.stat().st_mtime_ns)
    except OSError:
        return []
    for directory in directories[:MOST_QUERIED]:
        try:
            submission = read_submission(directory)
            if submission is None or Path(submission.run_dir, FILE_NAME).exists():
                continue
            system, queue = batch_system(submission.system), queue_of(submission.system)
            seen = queue.view(submission.job, queue.command_environment(environ), SHORT_TIMEOUT)
        except ClusterError as error:
            found.append(f"The state of the submission in {directory} is not known: {error}.")
            continue
        name = Path(submission.run_dir).name.removeprefix(PREFIX)
        if seen is None:
            job = f"{system.label} job {submission.job}"
            found.append(f"Run {name} was submitted as {job}, which {system.label} does not know any more.")
        else:
            why = f", {seen.reason}" if seen.reason else ""
            found.append(
                f"Run {name} was submitted as {system.label} job {seen.id} ({seen.state}{why}), and has not started."
                f" {seen.blocked}".rstrip()
            )
    return found


def waiting_suffix(wd: Path) -> str:
    """The same sentences, to append to a sentence without its full stop."""
    return "".join(f". {sentence.removesuffix('.')}" for sentence in waiting_notices(wd, os.environ))


def _submissions(run_dir: Path) -> Iterator[tuple[Path, Submission]]:
    """The submissions of this run, in order."""
    for directory in (path for prefix in (EARLIER_DIRECTORY, DIRECTORY) for path in _present(run_dir, prefix)):
        if not any(_own([directory])):
            continue  # of another user: its content would become options of a batch job
        submission = read_submission(directory)
        # The directory may belong to another run, whose name ends with this number.
        if submission is not None and submission.run_dir == str(run_dir):
            yield directory, submission


def _present(run_dir: Path, prefix: str) -> Iterator[Path]:
    return takewhile(os.path.lexists, _candidates(run_dir, prefix))


def _own(directories: Iterable[Path]) -> Iterator[Path]:
    """Only the directories of this user: a shared working directory may hold directories of others."""
    for directory in directories:
        try:
            check_own_directory(directory)
        except OSError:
            continue
        yield directory


def _candidates(run_dir: Path, prefix: str) -> Iterator[Path]:
    name = prefix + run_dir.name.removeprefix(PREFIX)
    yield run_dir.with_name(name)
    for number in range(2, 1000):
        yield run_dir.with_name(f"{name}.{number}")
