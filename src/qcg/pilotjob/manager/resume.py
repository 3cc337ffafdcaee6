"""Take up a run where its last manager left it."""

from __future__ import annotations

import time

import msgspec

from qcg.pilotjob.common.options import Options, UsageError
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.core.restore import Restoration, known_iterations
from qcg.pilotjob.executors.ledger_reader import Untold
from qcg.pilotjob.journal.descriptions import DamagedDescription, decode, iteration_of
from qcg.pilotjob.journal.journal import Journal, damaged
from qcg.pilotjob.journal.metadata import END_WHEN_DONE, FINISH_REQUESTED, OPTIONS, REPORT_SIZE, DamagedMetadata
from qcg.pilotjob.journal.records import FinalJob
from qcg.pilotjob.manager.job_views import Stories
from qcg.pilotjob.report.writer import UNKNOWN, ReportWriter


def restore(core: CoreState, journal: Journal, told: Untold) -> list[Effect]:
    """Fill empty books from the journal; what follows from that. `told`: by agents that are not there any more."""
    try:
        return _restore(core, journal, told)
    except DamagedDescription as error:
        raise damaged(journal.path, str(error)) from None


def _restore(core: CoreState, journal: Journal, told: Untold) -> list[Effect]:
    loaded = journal.load()
    restoration = Restoration(core, time.time(), loaded.max_seq)
    iterated: list[FinalJob] = []
    for final in loaded.final:
        if final.iterations:
            iterated.append(final)
        else:
            restoration.final_job(final.seq, final.name, final.state, final.submitted, final.message, None)
    for job in loaded.unfinished:
        if job.iterations:
            iteration_of(job.spec, job.seq, job.name, job.iterations)
        try:
            restoration.unfinished_job(job.seq, job.name, job.submitted, job.spec, job.started or 0.0)
        except (msgspec.DecodeError, UnicodeDecodeError):
            decode(job.spec, job.seq, job.name)
            raise
        if job.rest is not None:
            restoration.rest(job.seq, job.rest)
    for seq, position, state in loaded.settled:
        restoration.settled_iteration(seq, position, state)
    for forgotten in loaded.forgotten:
        restoration.lost_attempt(forgotten.seq, forgotten.position, forgotten.attempt)
    for run in loaded.under_way:
        grant = run.grant or Grant(())
        place = (run.seq, run.position, run.attempt, grant, run.scheduled or 0.0)
        restoration.run_under_way(
            place, killed=run.killed, stopped=run.stopped, pid=run.pid, started=run.started or 0.0
        )
    for final in iterated:
        iterations = _iterations(final, journal)
        restoration.final_job(final.seq, final.name, final.state, final.submitted, final.message, iterations)
    restoration.told(told.records, told.agents, everything=told.everything)
    return restoration.finish()


def _iterations(final: FinalJob, journal: Journal) -> Iterations:
    spec = journal.spec_of(final.seq)
    assert spec is not None
    iteration = iteration_of(spec, final.seq, final.name, final.iterations)
    if final.state is State.SUCCEED:
        return known_iterations(iteration.indices(), State.SUCCEED, ())
    record = journal.job_record(final.seq)
    rest = (record.rest if record else None) or final.state
    return known_iterations(iteration.indices(), rest, journal.iteration_states(final.seq))


def complete_report(report: ReportWriter, journal: Journal, stories: Stories, core: CoreState) -> int:
    """Write again what a crash of the machine has taken from `jobs.report`; how many entries these are.

    The registry is synced more often, and has all of them but those of jobs removed since.
    """
    # Whatever happens until the next commit, a manager that comes then does the same again.
    journal.set_metadata(REPORT_SIZE, UNKNOWN)
    journal.commit()
    known = report.recover()
    return report.add_missing(stories.recorded_ends(core.jobs.values()), known)


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
