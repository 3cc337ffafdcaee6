"""Views of jobs and iterations: from the core while they are active, from the journal afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import UNSET

from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import CANCELED, FAILED, SUCCEED, State
from qcg.pilotjob.core.records import Attempt, Grant, Job
from qcg.pilotjob.description.iteration import RowError
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.host.records import Usage
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.journal.records import AttemptRecord, JobRecord, PastAttemptRecord
from qcg.pilotjob.journal.registry_reader import RegistryReader
from qcg.pilotjob.launch.compose import command_line, directory_of, program_name, stream_paths
from qcg.pilotjob.launch.remote import remote_site, retrieved_streams, shown_command, shown_directory
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.report.record import IterationCounts, JobEnd


class JobViews:
    """Builds the record of a job or iteration that replies and reports show."""

    def __init__(
        self,
        journal: RegistryReader,
        descriptions: Descriptions,
        site: Site,
        remote_sites: Mapping[str, Site] = MappingProxyType({}),
    ) -> None:
        """`remote_sites`: the sites of remote hosts, by name. For other hosts only the names of files are known."""
        self._journal = journal
        self._descriptions = descriptions
        self._site = site
        self._remote_sites = remote_sites

    def end_of(self, end: Transition) -> JobEnd:
        """The record of an end, at the time of its transition."""
        job, position, attempt = end.job, end.position, end.attempt
        if attempt is None:
            earlier = self._earlier(job, position) if job.last_number_of(position) else ()
            began = _began(job, position)
            return self._view(job, position, end.state, 0.0, began, end.at, message=end.message, earlier=earlier)
        earlier = self._earlier(job, position) if attempt.ordinal > 1 else ()
        return self._view(
            job,
            position,
            end.state,
            attempt.scheduled,
            attempt.started,
            end.at,
            attempt.grant,
            end.exit_code,
            attempt.pid,
            end.message,
            earlier,
            attempt.usage,
        )

    def view_of(self, job: Job, position: int) -> JobEnd:
        """The current record of a job or an iteration."""
        iterations = job.iterations
        state = job.state if position < 0 or iterations is None else iterations.state(position)
        attempt = job.attempt if position < 0 or iterations is None else iterations.attempts.get(position)
        earlier = self._earlier(job, position)
        if attempt is not None:
            return self._active(job, position, state, attempt, earlier)
        record = next(self._journal.attempts_of(job.seq, [position]), None)
        if record is not None and state.is_final:
            return self._recorded(job, position, record, earlier)
        return self._without_attempt(job, position, state, earlier)

    def failure_of(self, job: Job, position: int) -> str:
        """Why an iteration has failed."""
        record = next(self._journal.attempts_of(job.seq, [position]), None)
        return job.message or self._job_record(job).message if record is None else record.message

    def iterations_of(self, job: Job, positions: range) -> Iterator[tuple[int, JobEnd]]:
        """The current records of these iterations, one after another."""
        assert job.iterations is not None
        records = {record.position: record for record in self._journal.attempts_among(job.seq, positions)}
        earlier: dict[int, list[PastAttemptRecord]] = {}
        for past in self._journal.past_attempts_among(job.seq, positions):
            earlier.setdefault(past.position, []).append(past)
        whole: JobRecord | None = None
        for position in positions:
            state, attempt = job.iterations.state(position), job.iterations.attempts.get(position)
            record, past_of_one = records.get(position), tuple(earlier.get(position, ()))
            if attempt is not None:
                yield position, self._active(job, position, state, attempt, past_of_one)
            elif record is not None and state.is_final:
                yield position, self._recorded(job, position, record, past_of_one)
            else:
                whole = whole or self._job_record(job)
                yield position, self._iteration_without_attempt(job, position, state, whole, past_of_one)

    def recorded_ends(self, jobs: Iterable[Job]) -> Iterator[JobEnd]:
        """The ends of these jobs that have an entry in `jobs.report`, from the registry."""
        by_seq = {job.seq: job for job in jobs}
        ended_with_attempt = set()
        for attempt in self._journal.attempt_records():
            job = by_seq.get(attempt.seq)
            if job is not None and attempt.state.is_final and not attempt.together:
                earlier = self._earlier(job, attempt.position) if attempt.attempt > 1 else ()
                yield self._recorded(job, attempt.position, attempt, earlier)
                if attempt.position < 0:
                    ended_with_attempt.add(attempt.seq)
        for record in self._journal.job_records():
            job = by_seq.get(record.seq)
            if job is not None and record.state.is_final and record.seq not in ended_with_attempt:
                yield self._without_attempt(job, -1, record.state)

    def streams_of(self, job: Job, position: int, grant: Grant, end: JobEnd | None = None) -> dict[str, str]:
        """The absolute paths of the `stdout` and `stderr` files of an attempt with this grant, if it has any.

        After its end, also the files in which captured output is saved, if there was any.
        """
        saved = end is not None and bool(end.pid) and (self._site.keep_output or end.state in (FAILED, CANCELED))
        description = self._descriptions.of(job)
        if description.request.host:
            return retrieved_streams(description, job.name, position, self._remote_site(grant))
        ordinal = len(self._earlier(job, position)) + 1
        return stream_paths(description, job.name, position, grant, self._site, saved=saved, ordinal=ordinal)

    def command_of(self, job: Job, position: int, grant: Grant) -> str:
        """The command line of an attempt, as it could be typed into a shell."""
        stored = self._journal.command_of(job.seq, position)
        if stored:
            return stored
        description = self._descriptions.of(job)
        if description.request.host:
            return shown_command(description, position, grant, self._remote_site(grant))
        ordinal = len(self._earlier(job, position)) + 1
        return command_line(description, position, grant, "", self._site, ordinal)

    def _earlier(self, job: Job, position: int) -> tuple[PastAttemptRecord, ...]:
        return tuple(self._journal.past_attempts_of(job.seq, position))

    def _remote_site(self, grant: Grant) -> Site:
        """The site of the remote host of a grant."""
        host = grant.parts[0].node if grant.parts else ""
        return self._remote_sites.get(host) or remote_site(host, self._site.instance)

    def _active(
        self, job: Job, position: int, state: State, attempt: Attempt, earlier: tuple[PastAttemptRecord, ...]
    ) -> JobEnd:
        times = attempt.scheduled, attempt.started
        return self._view(job, position, state, *times, grant=attempt.grant, pid=attempt.pid, earlier=earlier)

    def _recorded(
        self, job: Job, position: int, record: AttemptRecord, earlier: tuple[PastAttemptRecord, ...]
    ) -> JobEnd:
        times = record.scheduled or 0.0, record.started or 0.0, record.ended or 0.0
        end = record.exit_code, record.pid, record.message
        return self._view(job, position, record.state, *times, record.grant, *end, earlier, record.usage)

    def _without_attempt(
        self, job: Job, position: int, state: State, earlier: tuple[PastAttemptRecord, ...] = ()
    ) -> JobEnd:
        """A job that waits, has ended without an attempt, or is iterated and has no attempt of its own."""
        record = self._job_record(job)
        if position >= 0:
            return self._iteration_without_attempt(job, position, state, record, earlier)
        times = record.started or 0.0, record.ended or 0.0
        return self._view(job, position, state, 0.0, *times, message=job.message or record.message, earlier=earlier)

    def _iteration_without_attempt(
        self, job: Job, position: int, state: State, record: JobRecord, earlier: tuple[PastAttemptRecord, ...]
    ) -> JobEnd:
        if not state.is_final:
            return self._view(job, position, state, earlier=earlier)
        ended, message = record.rest_at or record.ended or 0.0, job.message or record.message
        return self._view(job, position, state, ended=ended, message=message, earlier=earlier)

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
        earlier: tuple[PastAttemptRecord, ...] = (),
        usage: Usage | None = None,
    ) -> JobEnd:
        description = self._descriptions.of(job)
        wd = pname = ""
        counts = None
        value: Any = UNSET
        if grant is not None:
            ordinal = len(earlier) + 1 if earlier else 1
            if description.request.host:
                wd = shown_directory(description, job.name, position, grant, self._remote_site(grant), ordinal)
            else:
                wd = directory_of(description, position, grant, self._site, ordinal)
            pname = program_name(description.execution)
        if position >= 0:
            value = self._value(description, position)
        elif job.iterations is not None:
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
            value,
            earlier,
            usage,
        )

    def row_problem_of(self, job: Job, position: int) -> str:
        """Why the row of an iteration cannot be read any more: then its value and the names of its files are unknown.

        Empty for all others."""
        iteration = self._descriptions.of(job).iteration
        if position < 0 or iteration is None or iteration.rows is None:
            return ""
        try:
            iteration.value(position, self._site.rows)
        except RowError as error:
            return str(error)
        return ""

    def _value(self, description: JobDescription, position: int) -> Any:
        """The value of an iteration that has one; unset also when the row of a file cannot be read any more."""
        iteration = description.iteration
        if iteration is None or not iteration.has_values:
            return UNSET
        try:
            return iteration.value(position, self._site.rows)
        except RowError:
            return UNSET


def message_of(job: Job, stored: str = "") -> str:
    """The message of a job as a whole; `stored` is the one in the registry. It reads no single iterations.

    A job that failed because of some iterations has no message of its own: the stored one may be why other iterations
    were not started.
    """
    iterations = job.iterations
    if iterations is None:
        return stored or job.message
    failed = iterations.counts[FAILED]
    if not job.state.is_final and failed:
        return f"{failed} of {len(iterations)} iterations have failed so far"
    if job.state is not FAILED or (iterations.all_failed and (stored or job.message)):
        return stored or job.message
    return f"{failed} of {len(iterations)} iterations failed"


def _counts(iterations: Iterations) -> IterationCounts:
    return IterationCounts(len(iterations), *iterations.counts[SUCCEED:])


def _began(job: Job, position: int) -> float:
    """When the first iteration of an iterated job started; 0 for all others."""
    return job.iterations.began if position < 0 and job.iterations is not None else 0.0
