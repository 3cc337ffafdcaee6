"""Take up a run where its last manager left it."""

from __future__ import annotations

import time

from qcg.pilotjob.common.options import Options, UsageError
from qcg.pilotjob.core import restore as core_restore
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.restore import LedgerRecords
from qcg.pilotjob.executors.ledger_reader import Untold
from qcg.pilotjob.journal.descriptions import DamagedDescription
from qcg.pilotjob.journal.journal import Journal, damaged
from qcg.pilotjob.journal.metadata import END_WHEN_DONE, FINISH_REQUESTED, OPTIONS, REPORT_SIZE, DamagedMetadata
from qcg.pilotjob.manager.job_views import JobViews
from qcg.pilotjob.report.writer import UNKNOWN, ReportWriter


def restore(core: CoreState, journal: Journal, told: Untold) -> list[Effect]:
    """Restore an empty core from the registry and from the ledgers of agents that have ended; returns the effects."""
    ledgers = LedgerRecords(told.records, told.agents, complete=told.everything)
    try:
        return core_restore.restore(core, journal.load(), ledgers, time.time())
    except DamagedDescription as error:
        raise damaged(journal.path, str(error)) from None


def complete_report(report: ReportWriter, journal: Journal, views: JobViews, core: CoreState) -> int:
    """Write again what a crash of the machine has taken from `jobs.report`; how many entries these are.

    The registry is synced more often, and has all of them but those of jobs removed since.
    """
    # Whatever happens until the next commit, a manager that comes then does the same again.
    journal.set_metadata(REPORT_SIZE, UNKNOWN)
    journal.commit()
    known = report.recover()
    return report.add_missing(views.recorded_ends(core.jobs.values()), known)


def forget_end(journal: Journal, *, when_done: bool) -> None:
    """Forget that an earlier manager was told to finish: whoever resumes a run wants its jobs to continue.

    `when_done`: also that it was to end once all jobs are final."""
    journal.set_metadata(FINISH_REQUESTED, False)
    if when_done:
        journal.set_metadata(END_WHEN_DONE, False)


def stored_options(journal: Journal) -> Options:
    """The options of the run as it was begun, or resumed the last time."""
    try:
        options = journal.metadata(OPTIONS)
    except DamagedMetadata as error:
        raise UsageError(f"{journal.path} is damaged: the options of the run cannot be read ({error})") from None
    if options is None:
        raise UsageError(f"{journal.path.parent} cannot be resumed: its manager died before it had begun; start anew")
    return options
