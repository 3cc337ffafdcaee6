"""Finds the runs of a directory, and the run that a command means."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.registry import system_in_use
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.metadata import OPTIONS, STARTED_IN_ALLOCATION
from qcg.pilotjob.journal.registry_files import FILE_NAME
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.runs.manager_process import has_manager
from qcg.pilotjob.runs.own_runs import MOST_NAMED, FoundRuns
from qcg.pilotjob.runs.own_runs import ForeignRunError as ForeignRunError
from qcg.pilotjob.runs.own_runs import RunsError as RunsError
from qcg.pilotjob.runs.own_runs import find_runs as find_runs
from qcg.pilotjob.runs.own_runs import own_runs as own_runs
from qcg.pilotjob.runs.own_runs import why_not_own_run as why_not_own_run
from qcg.pilotjob.runs.rundir import PREFIX
from qcg.pilotjob.runs.submissions import waiting_suffix
from qcg.pilotjob.runs.unfinished import UnfinishedRun, count_unfinished, has_jobs, read_unfinished

log = logging.getLogger(__name__)

MOST_EXAMINED = 20
"""Most runs of a directory that are examined, the newest first."""
RESTARTS_TIMEOUT = 60.0
"""Seconds for the batch system to say whether it requeued this allocation: the run waits for its answer."""


def newest_readable_run(path: Path) -> Path:
    """The newest run with a readable registry, preferably one with jobs."""
    found = find_runs(path)
    try:
        readable = [run for run in found.own if FILE_NAME in os.listdir(run)]
        unreadable = ""
    except PermissionError as error:
        readable = [run for run in found.own if os.access(run, os.R_OK | os.X_OK) and FILE_NAME in os.listdir(run)]
        unreadable = f"; {error.filename} cannot be read: {os.strerror(error.errno or 0)}"
    if not readable:
        why = f": no {PREFIX}* in it has a {FILE_NAME} that can be read" if found.own else ""
        raise RunsError(
            f"There is no run in {path.absolute()}{why}{unreadable}; give the directory of a run, or the one that it"
            f" worked in{waiting_suffix(path)}"
            f"{_skipped_suffix(found)}"
        )
    return newest_with_jobs(readable)


def _skipped_suffix(found: FoundRuns) -> str:
    """The notices about skipped runs, to append to a sentence without its full stop."""
    return "".join(f". {sentence.removesuffix('.')}" for sentence in found.notices())


def newest_with_jobs(runs: list[Path]) -> Path:
    """The first run with jobs, or else the first one. `runs`: the newest first."""
    return next((run for run in runs[:MOST_EXAMINED] if len(runs) == 1 or has_jobs(run)), runs[0])


def run_to_resume(path: Path) -> Path:
    """The run for `--resume`: the newest one with unfinished jobs, or else the newest."""
    try:
        found = find_runs(path)
    except RunsError as error:
        raise UsageError(f"--resume: {error}") from None
    if not found.own:
        further = waiting_suffix(path) + _skipped_suffix(found)
        whose = "of yours " if found.skipped else ""
        raise UsageError(
            f"there is no run to resume in {path.absolute()}: no directory {PREFIX}* {whose}is there{further}"
        )
    left = find_unfinished_runs(path, 1) if len(found.own) > 1 else []
    return left[0].run_dir if left else found.own[0]


def requeued_run(wd: Path, file_path: str, id: str | None, environ: Mapping[str, str]) -> Path | None:
    """The run that this allocation started with this file before the batch system requeued it.

    Raises: `UsageError` when the batch system does not say whether it requeued the allocation, and a run of this
    allocation and file has unfinished jobs: a new run would start jobs that have ended again.
    """
    system = system_in_use(environ)
    allocation = None if system is None else system.allocation_ref(environ)
    if system is None or allocation is None:
        return None
    unknown: ClusterError | None = None
    try:
        if not system.requeue_count(environ, RESTARTS_TIMEOUT):
            return None
    except ClusterError as error:
        unknown = error
    started = _started_runs(wd, file_path, id, allocation.id)
    unfinished = next((run for run in started if count_unfinished(run)), None)
    if unknown is None:
        return unfinished or next(iter(started), None)
    if unfinished is not None:
        raise UsageError(
            f"{unfinished} was started in this allocation with this file and has unfinished jobs, and it is not known"
            f" whether {system.label} has queued the allocation again ({unknown}); continue that run with --resume"
            f" {shlex.quote(str(unfinished))}, or start a new one with --id and another name"
        )
    log.warning("cannot tell whether %s has requeued this job (%s); starting a new run", system.label, unknown)
    return None


def _started_runs(wd: Path, file_path: str, id: str | None, allocation: str) -> list[Path]:
    """The runs of an allocation and a file, the newest first. `id`: the only one to look at."""
    try:
        runs = [run.resolve() for run in own_runs(wd) if id is None or run.name == f"{PREFIX}{id}"]
    except RunsError:
        return []
    return [run for run in runs[:MOST_EXAMINED] if _was_started_with(run, allocation, file_path)]


def _was_started_with(run_dir: Path, allocation: str, file_path: str) -> bool:
    try:
        with snapshot(run_dir / FILE_NAME, whole=False) as connection:
            options = OPTIONS.read(connection)
            same_allocation = STARTED_IN_ALLOCATION.read(connection) == allocation
        return same_allocation and options is not None and options.file_path == file_path
    except (JournalError, OSError):
        return False


def find_unfinished_runs(path: Path, most: int = MOST_NAMED, besides: Path | None = None) -> list[UnfinishedRun]:
    """Runs with unfinished jobs and no manager, the newest first. Unreadable runs are skipped.

    `most`: their largest number, because registries may be large. `besides`: a run to leave out.
    """
    try:
        runs = [run.absolute() for run in own_runs(path)[:MOST_EXAMINED]]
    except RunsError:
        return []
    examined = (read_unfinished(run) for run in runs if run != besides and not has_manager(run))
    return list(islice((left for left in examined if left.unfinished), most))
