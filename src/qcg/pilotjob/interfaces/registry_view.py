"""The view of a run without a manager, from its registry."""

from __future__ import annotations

import contextlib
from pathlib import Path

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, Grant, Job
from qcg.pilotjob.core.why_left import HeldPrerequisite
from qcg.pilotjob.executors.ssh.marker import read_directories
from qcg.pilotjob.host.records import OUTPUT
from qcg.pilotjob.journal.damage import unreadable_of
from qcg.pilotjob.journal.descriptions import DamagedDescription, Descriptions, decode_description, iteration_of
from qcg.pilotjob.journal.held_jobs import HeldJobs
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.metadata import OPTIONS, DamagedMetadata
from qcg.pilotjob.journal.records import AttemptRecord, JobRecord
from qcg.pilotjob.journal.registry_reader import RegistryReader
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.launch.remote import sites_of_paths
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.manager.job_views import JobViews
from qcg.pilotjob.manager.output_tails import OutputTails
from qcg.pilotjob.rows.store import DIRECTORY as ROWS
from qcg.pilotjob.rows.store import RowFiles


class RegistryView:
    """Implements RunView on a snapshot of the registry, without effects and writes. Close it after use."""

    stalled = False
    alive = False

    def __init__(self, run_dir: Path) -> None:
        """Raises JournalError when the registry cannot be read."""
        with contextlib.ExitStack() as undo:
            connection = undo.enter_context(snapshot(run_dir / FILE_NAME))
            self.unreadable = unreadable_of(connection)
            """The unreadable parts of a damaged registry."""
            self.connection = connection
            self.run_dir = run_dir
            self._registry = RegistryReader(connection)
            self.descriptions = Descriptions(self._registry)
            remote = sites_of_paths(read_directories(run_dir))
            self.views = JobViews(self._registry, self.descriptions, _site(run_dir, self._registry), remote)
            self._interrupted = frozenset(self._registry.interrupted())
            self._held = HeldJobs(connection)
            self.state = CoreState([])
            for record in self._registry.job_records():
                try:
                    self.state.register(self._job(record))
                except DamagedDescription as error:
                    self.unreadable.append(str(error))
            self._add_holds()
            self._open = undo.pop_all()

    @property
    def output_tails(self) -> OutputTails:
        """A new one: each query has an event loop of its own."""
        return OutputTails()

    def was_interrupted(self, job: Job, position: int) -> bool:
        """Whether an attempt of this job or iteration was ended with its manager: it is started again."""
        return (job.seq, position) in self._interrupted

    def held_prerequisite(self, job: Job) -> HeldPrerequisite | None:
        return self._held.prerequisite_of(job.seq)

    def close(self) -> None:
        self._open.close()

    def _add_holds(self) -> None:
        for seq, position, since in self._registry.holds():
            job = self.state.find_seq(seq)
            if job is not None:
                self.state.holds.hold(job, position, since)

    def _job(self, record: JobRecord) -> Job:
        job = Job(record.seq, record.name, b"", record.submitted)
        job.spec = None
        job.state = record.state
        job.message = record.message
        if record.iterations:
            self._add_iterations(job, record)
        elif not record.state.is_final:
            for attempt in self._registry.attempts_of(job.seq, [-1]):
                job.state = attempt.state
                job.attempt = _attempt(job, attempt)
        return job

    def _add_iterations(self, job: Job, record: JobRecord) -> None:
        spec = self._registry.spec_of(job.seq)
        assert spec is not None
        description = decode_description(spec, job.seq, job.name)
        iteration = iteration_of(description, job.seq, job.name, record.iterations)
        job.iterations = Iterations(iteration.indices())
        job.iterations.began = record.started or 0.0
        if record.state is not State.SUCCEED:
            for attempt in self._registry.attempts_of(job.seq):
                job.iterations.set_state(attempt.position, attempt.state)
                if not attempt.state.is_final:
                    job.iterations.attempts[attempt.position] = _attempt(job, attempt)
        rest = record.rest or (record.state if record.state.is_final else None)
        if rest is not None:
            job.iterations.make_queued_final(rest)
        if not (job.state.is_final or job.iterations.attempts):
            job.state = State.QUEUED  # it was EXECUTING, and has no attempt any more


def _site(run_dir: Path, registry: RegistryReader) -> Site:
    """The site as far as it determines paths of output files."""
    try:
        options = registry.metadata(OPTIONS) or Options()
    except DamagedMetadata:
        options = Options()
    return Site(
        root_wd=str(run_dir.resolve().parent),
        instance="",
        output=str(run_dir.resolve() / OUTPUT),
        keep_output=options.keep_output,
        stream_output=options.stream_output,
        rows=RowFiles(str(run_dir.resolve().parent), str(run_dir.resolve() / ROWS)).row,
    )


def _attempt(job: Job, record: AttemptRecord) -> Attempt:
    attempt = Attempt(job, record.position, record.attempt, record.grant or Grant(()), record.scheduled or 0.0)
    attempt.pid, attempt.started, attempt.kill_requested = record.pid, record.started or 0.0, record.kill_requested
    return attempt
