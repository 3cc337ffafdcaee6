"""Notices about parameter files that have changed while a run had no manager."""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
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
        change = row_files.change_of(iteration.rows) if iteration is not None and iteration.rows is not None else ""
        if change:
            notices.append(
                f"Job {job.name!r}: {change} since it was submitted; iterations whose rows are not the same any more"
                " will fail."
            )
    return notices
