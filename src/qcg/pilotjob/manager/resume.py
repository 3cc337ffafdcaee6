"""Resume a run: restore its core and its report from the registry."""

from __future__ import annotations

import time

from qcg.pilotjob.common.options import Options, UsageError
from qcg.pilotjob.core import restore as core_restore
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.restore import LedgerRecords
from qcg.pilotjob.executors.ledger_reader import UnreportedRecords
from qcg.pilotjob.journal.descriptions import DamagedDescription
from qcg.pilotjob.journal.journal import Journal, damaged
from qcg.pilotjob.journal.metadata import (
    END_WHEN_DONE,
    FAILURE_LIMIT_REACHED,
    FINISH_REQUESTED,
    OPTIONS,
    REPORT_SIZE,
    DamagedMetadata,
)
from qcg.pilotjob.journal.snapshot import reading
from qcg.pilotjob.manager.job_views import JobViews
from qcg.pilotjob.report.writer import UNKNOWN, ReportWriter


def restore(core: CoreState, journal: Journal, unreported: UnreportedRecords) -> list[Effect]:
    """Restore an empty core from the registry and from the ledgers of agents that have ended; returns the effects."""
    ledgers = LedgerRecords(unreported.records, unreported.agents, complete=unreported.is_complete)
    try:
        with reading(journal.path):
            return core_restore.restore(core, journal.load(), ledgers, time.time())
    except DamagedDescription as error:
        raise damaged(journal.path, str(error)) from None


def complete_report(report: ReportWriter, journal: Journal, views: JobViews, core: CoreState) -> int:
    """Write entries again that a crash of the machine has removed from `jobs.report`; returns their number.

    The registry is synced more often. It has all of them, except for jobs that were removed since.
    """
    # After a crash before the next commit, the next manager does the same again.
    journal.set_metadata(REPORT_SIZE, UNKNOWN)
    journal.commit()
    known = report.recover()
    with reading(journal.path):
        return report.add_missing(views.recorded_ends(core.jobs.values()), known)


def forget_end(journal: Journal, *, when_done: bool) -> None:
    """Forget a `finish` request to an earlier manager, and its failures, because a resumed run is to continue.

    `when_done`: also forget the request to end once all jobs are final."""
    journal.set_metadata(FINISH_REQUESTED, False)
    journal.set_metadata(FAILURE_LIMIT_REACHED, False)
    if when_done:
        journal.set_metadata(END_WHEN_DONE, False)


def stored_options(journal: Journal) -> Options:
    """The options of the last manager of the run."""
    try:
        options = journal.metadata(OPTIONS)
    except DamagedMetadata as error:
        raise UsageError(f"{journal.path} is damaged: the options of the run cannot be read ({error})") from None
    if options is None:
        raise UsageError(f"{journal.path.parent} cannot be resumed: its manager died before it had begun; start anew")
    return options
