"""Notices about parameter files that have changed while a run had no manager."""

from __future__ import annotations

import os

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.description.iteration import RowFile
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.rows.store import RowFiles

_MARK = b"\xa7columns"
"""The key of a parameter file in an encoded description. It saves the decoding of descriptions without one."""


def changed_row_files(state: CoreState, descriptions: Descriptions, row_files: RowFiles) -> list[str]:
    """A sentence for each unfinished job whose parameter file is not as it was when the job was submitted."""
    notices = []
    for job in state.jobs.values():
        if job.iterations is None or job.state.is_final or job.spec is None or _MARK not in job.spec:
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
        f"{change} since it was submitted; the run goes on with the rows as they were submitted. To use the new rows"
        " for iterations that fail, give the job to --rerun failed --from FILE."
        if os.path.exists(file.path)
        else ""
    )
