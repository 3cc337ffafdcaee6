"""Views of jobs and iterations: from the core while they are active, from the journal afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import CANCELED, FAILED, SUCCEED, State
from qcg.pilotjob.core.records import Attempt, Grant, Job
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.journal.records import AttemptRecord, JobRecord
from qcg.pilotjob.journal.registry_reader import RegistryReader
from qcg.pilotjob.launch.compose import command_line, directory_of, program_name, stream_paths
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.report.record import IterationCounts, JobEnd


class JobViews:
    """Builds the record of a job or iteration that replies and reports show."""

    def __init__(self, journal: RegistryReader, descriptions: Descriptions, site: Site) -> None:
        self._journal = journal
        self._descriptions = descriptions
        self._site = site

    def end_of(self, end: Transition) -> JobEnd:
        """The record of an end, at the time of its transition."""
        job, position, run = end.job, end.position, end.attempt
        if run is None:
            return self._view(job, position, end.state, 0.0, _began(job, position), end.at, message=end.message)
        times = run.scheduled, run.started, end.at
        return self._view(job, position, end.state, *times, run.grant, end.exit_code, run.pid, end.message)

    def view_of(self, job: Job, position: int) -> JobEnd:
        """The current record of a job or an iteration."""
        iterations = job.iterations
        state = job.state if position < 0 or iterations is None else iterations.state(position)
        run = job.attempt if position < 0 or iterations is None else iterations.attempts.get(position)
        if run is not None:
            return self._active(job, position, state, run)
        record = next(self._journal.attempts_of(job.seq, [position]), None)
        if record is not None and state.is_final:
            return self._recorded(job, position, record)
        return self._without_attempt(job, position, state)

    def iterations_of(self, job: Job, positions: range) -> Iterator[tuple[int, JobEnd]]:
        """The current records of these iterations, one after another."""
        assert job.iterations is not None
        records = {record.position: record for record in self._journal.attempts_among(job.seq, positions)}
        whole: JobRecord | None = None
        for position in positions:
            state, run = job.iterations.state(position), job.iterations.attempts.get(position)
            record = records.get(position)
            if run is not None:
                yield position, self._active(job, position, state, run)
            elif record is not None and state.is_final:
                yield position, self._recorded(job, position, record)
            else:
                whole = whole or self._job_record(job)
                yield position, self._iteration_without_attempt(job, position, state, whole)

    def recorded_ends(self, jobs: Iterable[Job]) -> Iterator[JobEnd]:
        """The ends of these jobs that have an entry in `jobs.report`, from the registry."""
        by_seq = {job.seq: job for job in jobs}
        ended_with_run = set()
        for run in self._journal.attempt_records():
            job = by_seq.get(run.seq)
            if job is not None and run.state.is_final and not run.together:
                yield self._recorded(job, run.position, run)
                if run.position < 0:
                    ended_with_run.add(run.seq)
        for record in self._journal.job_records():
            job = by_seq.get(record.seq)
            if job is not None and record.state.is_final and record.seq not in ended_with_run:
                yield self._without_attempt(job, -1, record.state)

    def streams_of(self, job: Job, position: int, grant: Grant, end: JobEnd | None = None) -> dict[str, str]:
        """The absolute paths of the `stdout` and `stderr` files of an attempt with this grant, if it has any.

        After its end, also the files in which captured output is saved, if there was any.
        """
        saved = end is not None and bool(end.pid) and (self._site.keep_output or end.state in (FAILED, CANCELED))
        description = self._descriptions.of(job)
        return stream_paths(description, job.name, position, grant, self._site, saved=saved)

    def command_of(self, job: Job, position: int, grant: Grant) -> str:
        """The command line of an attempt, as it could be typed into a shell."""
        stored = self._journal.command_of(job.seq, position)
        return stored or command_line(self._descriptions.of(job), position, grant, "", self._site)

    def _active(self, job: Job, position: int, state: State, run: Attempt) -> JobEnd:
        return self._view(job, position, state, run.scheduled, run.started, grant=run.grant, pid=run.pid)

    def _recorded(self, job: Job, position: int, record: AttemptRecord) -> JobEnd:
        times = record.scheduled or 0.0, record.started or 0.0, record.ended or 0.0
        end = record.exit_code, record.pid, record.message
        return self._view(job, position, record.state, *times, record.grant, *end)

    def _without_attempt(self, job: Job, position: int, state: State) -> JobEnd:
        """A job that waits, has ended without an attempt, or is iterated and has no attempt of its own."""
        record = self._job_record(job)
        if position >= 0:
            return self._iteration_without_attempt(job, position, state, record)
        times = record.started or 0.0, record.ended or 0.0
        return self._view(job, position, state, 0.0, *times, message=job.message or record.message)

    def _iteration_without_attempt(self, job: Job, position: int, state: State, record: JobRecord) -> JobEnd:
        if not state.is_final:
            return self._view(job, position, state)
        ended, message = record.rest_at or record.ended or 0.0, job.message or record.message
        return self._view(job, position, state, ended=ended, message=message)

    def _job_record(self, job: Job) -> JobRecord:
        record = self._journal.job_record(job.seq)
        assert record is not None
        return record

    def _view(
        self,
        job: Job,
        position: int,
        state: State,
        scheduled: float = 0.0,
        started: float = 0.0,
        ended: float = 0.0,
        grant: Grant | None = None,
        exit_code: int | None = None,
        pid: int = 0,
        message: str = "",
    ) -> JobEnd:
        description = self._descriptions.of(job)
        wd = pname = ""
        counts = None
        if grant is not None:
            wd = directory_of(description, position, grant, self._site)
            pname = program_name(description.execution)
        if position < 0 and job.iterations is not None:
            counts = _counts(job.iterations)
            message = message_of(job, message)
        # Positional, because keyword arguments take twice as long.
        return JobEnd(
            name_of(job, position),
            state,
            job.submitted,
            scheduled,
            started,
            ended,
            grant,
            wd,
            exit_code,
            pid,
            pname,
            message,
            description if position < 0 else None,
            counts,
        )


def message_of(job: Job, told: str = "") -> str:
    """The message of a job as a whole; `told` is the one in the registry. A job that failed because of some iterations
    has no message of its own: the stored one may be why other iterations were not started."""
    iterations = job.iterations
    if iterations is None or job.state is not FAILED or (iterations.all_failed and (told or job.message)):
        return told or job.message
    return f"{iterations.counts[FAILED]} of {len(iterations)} iterations failed"


def _counts(iterations: Iterations) -> IterationCounts:
    return IterationCounts(len(iterations), *iterations.counts[SUCCEED:])


def _began(job: Job, position: int) -> float:
    """When the first iteration of an iterated job started; 0 for all others."""
    return job.iterations.began if position < 0 and job.iterations is not None else 0.0
