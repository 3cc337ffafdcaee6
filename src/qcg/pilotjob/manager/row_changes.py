"""Parameter files that have changed: while a run had no manager, or in the new description of a job."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping

from msgspec.structs import replace

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.job_states import SUCCEED, State
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.rerun import UNSUCCESSFUL, changed_row
from qcg.pilotjob.description.encoding import COLUMNS_KEY
from qcg.pilotjob.description.iteration import RowError, RowFile
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.rows.store import RowFiles


def changed_row_files(state: CoreState, descriptions: Descriptions, row_files: RowFiles) -> list[str]:
    """A sentence for each unfinished job whose parameter file is not as it was when the job was submitted."""
    notices = []
    for job in state.jobs.values():
        if job.iterations is None or job.state.is_final or job.spec is None or COLUMNS_KEY not in job.spec:
            continue
        iteration = descriptions.of(job).iteration
        if iteration is not None and iteration.rows is not None and (notice := _notice(iteration.rows, row_files)):
            notices.append(f"Job {job.name!r}: {notice}")
    return notices


def _notice(file: RowFile, row_files: RowFiles) -> str:
    change = row_files.change_of(file)
    if not change:
        return ""
    if not row_files.has_copy(file):
        return f"{change} since it was submitted; iterations whose rows are not the same any more will fail."
    # A file that is gone or moved is not needed any more.
    return (
        f"{change} since it was submitted; the run continues with the rows as they were submitted. To use the new rows"
        " for iterations that fail, give the job to --rerun failed --from FILE."
        if os.path.exists(file.path)
        else ""
    )


def jobs_with_rows(
    engine: Engine, names: Collection[str], states: Collection[State], replaced: Collection[str]
) -> dict[str, JobDescription]:
    """The descriptions of jobs with parameter files that a rerun of these names and states selects, by name.

    `replaced`: jobs that get new descriptions; they are left out."""
    wanted = {name.partition(":")[0] for name in names}
    found = {}
    for name, job in engine.state.jobs.items():
        if job.iterations is None or name in replaced or (names and name not in wanted):
            continue
        if not any(job.iterations.counts[state] for state in states or UNSUCCESSFUL):
            continue
        description = engine.descriptions.of(job)
        if _rows_of(description) is not None:
            found[name] = description
    return found


def changed_files(described: Mapping[str, JobDescription], row_files: RowFiles, *, gone: bool) -> dict[str, str]:
    """The paths of the parameter files that are not as they were when their jobs were submitted, by job.

    `gone`: also files that cannot be found any more."""
    found = {}
    for name, description in described.items():
        file = _rows_of(description)
        if file is not None and row_files.change_of(file) and (gone or os.path.exists(file.path)):
            found[name] = file.path
    return found


def old_rows_notice(name: str, path: str) -> str:
    """A sentence about a job that runs again with its old rows."""
    return (
        f"job {name!r}: {path} has changed since it was submitted; it runs again with the rows as they were submitted."
        f" To use the new rows for iterations that fail: qcg-pm rerun --failed --reread {name}"
    )


def with_new_rows(
    job: Job, before: JobDescription, after: JobDescription, row_files: RowFiles
) -> tuple[JobDescription, frozenset[int]]:
    """A new description that names the rows of earlier attempts, and the positions without success that get other rows.

    Raises `SubmissionRejected` when the row of an iteration that has succeeded is another one: the iteration would be
    shown with parameters that it did not run with.
    """
    old, new = _rows_of(before), _rows_of(after)
    if old is None or new is None or after.iteration is None or job.iterations is None or old.rows != new.rows:
        return after, frozenset()
    changed = set()
    try:
        for position in row_files.differing(old, new):
            if job.iterations.states[position] == SUCCEED:
                raise SubmissionRejected([changed_row(job, position, new.path)])
            changed.add(position)
    except RowError as error:
        raise SubmissionRejected([f"job {job.name!r}: {error}"]) from None
    if changed:
        new = replace(new, before=old, since=time.time())
    elif old.before is not None:
        new = replace(new, before=old.before, since=old.since)
    after = replace(after, iteration=replace(after.iteration, rows=new))
    return after, frozenset(changed)


def _rows_of(description: JobDescription) -> RowFile | None:
    return None if description.iteration is None else description.iteration.rows
