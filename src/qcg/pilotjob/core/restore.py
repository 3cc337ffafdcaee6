"""Restore the state of the core from the registry and the ledgers of agents that have ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from qcg.pilotjob.core.attempt_end import lose_attempt, requeue_attempt
from qcg.pilotjob.core.attempt_events import attempt_ended, attempt_started
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.demands import set_demand
from qcg.pilotjob.core.dependencies import is_later
from qcg.pilotjob.core.drain import restore_drained
from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.events import AttemptEnded, AttemptStarted
from qcg.pilotjob.core.finalize import FinalState, is_met, make_final, make_position_ready
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import EXECUTING, QUEUED, SCHEDULED, State
from qcg.pilotjob.core.orphaned import orphan_reason, register_existing
from qcg.pilotjob.core.outcomes import note_begun
from qcg.pilotjob.core.queue import entry_of
from qcg.pilotjob.core.records import Attempt, DrainedNode, Grant, Job, Past
from qcg.pilotjob.core.retries import prepare_next_attempt
from qcg.pilotjob.core.submission import NewJob, enqueue, find_prerequisites, prepare, unshared
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.iteration import Indices
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.description.retry import GROWING_CAUSES
from qcg.pilotjob.host.records import Ended, Started


class EndedIterations(NamedTuple):
    """The states of the iterations of a final job."""

    indices: Indices
    rest: State
    """State of all iterations that are not among `known`."""
    known: Iterable[tuple[int, State]] = ()
    """Position and state of single iterations."""


class FinalJob(NamedTuple):
    """A job that is final: the core keeps little more than its name and its state."""

    seq: int
    name: str
    state: State
    submitted: float
    message: str
    iterations: EndedIterations | None = None


class UnfinishedJob(NamedTuple):
    """A job that is not final."""

    seq: int
    name: str
    submitted: float
    spec: bytes
    """The encoded description, which the registry stores."""
    description: JobDescription
    started: float = 0.0
    """When the first iteration of an iterated job started."""
    rest: State | None = None
    """State of all iterations that have neither ended nor started; None: they wait."""


class EndedIteration(NamedTuple):
    """A final iteration of a job that is not final."""

    seq: int
    position: int
    state: State


class RequeuedAttempt(NamedTuple):
    """An attempt whose job waits again. The next attempt gets a higher number."""

    seq: int
    position: int
    number: int


class PastAttempts(NamedTuple):
    """The earlier attempts of a job or iteration that is not final."""

    seq: int
    position: int
    attempts: int
    retries: Mapping[str, int]
    """Number of retries used for each cause."""
    next_at: float = 0.0
    """Time of the next attempt at the earliest."""
    failed_node: str = ""
    """Node on which the last attempt failed."""
    unstartable: bool = False
    """Whether an attempt could not be started."""


class HeldPosition(NamedTuple):
    """A hold of a job that is not final."""

    seq: int
    position: int
    since: float
    """0 for an iteration that was released, while the rest of its job is held."""


class OpenAttempt(NamedTuple):
    """An attempt without a known end. Its agent reports the end, and the start where that is not known."""

    seq: int
    position: int
    number: int
    grant: Grant
    scheduled: float
    started: float = 0.0
    pid: int = 0
    kill_requested: bool = False
    stop_requested: bool = False


class SavedRun(NamedTuple):
    """Everything that the registry knows about a run. Iterators are read once, in the order of the fields."""

    max_seq: int
    """The highest sequence number ever given, also to jobs that were removed."""
    final: Iterable[FinalJob] = ()
    unfinished: Iterable[UnfinishedJob] = ()
    """In the order of submission."""
    ended_iterations: Iterable[EndedIteration] = ()
    requeued: Sequence[RequeuedAttempt] = ()
    open_attempts: Sequence[OpenAttempt] = ()
    past: Sequence[PastAttempts] = ()
    held: Sequence[HeldPosition] = ()
    begun: Iterable[tuple[int, int]] = ()
    """Job number and position of each attempt that had begun to run and did not succeed."""
    drained: Mapping[str, DrainedNode] = {}


class LedgerRecords(NamedTuple):
    """Records of agents that have ended, which no manager has received."""

    records: Sequence[Started | Ended] = ()
    agents: Collection[str] = ()
    """Names of these agents."""
    complete: bool = True
    """All ledgers could be read: an attempt without a record has never started."""


def restore(core: CoreState, saved: SavedRun, ledgers: LedgerRecords, now: float) -> list[Effect]:
    """Fill an empty core; returns the effects that follow."""
    return _Restoration(core, saved, ledgers, now).effects()


class _Restoration:
    def __init__(self, core: CoreState, saved: SavedRun, ledgers: LedgerRecords, now: float) -> None:
        self._core = core
        self._saved = saved
        self._ledgers = ledgers
        core.now = now
        core.next_seq = saved.max_seq + 1
        self._new_jobs: dict[int, NewJob] = {}
        """By sequence number, the jobs that are not final."""

    def effects(self) -> list[Effect]:
        core = self._core
        restore_drained(core, self._saved.drained)
        for final in self._saved.final:
            self._add_final(final)
        rests = [(self._add_unfinished(job), job.rest) for job in self._saved.unfinished]
        for ended in self._saved.ended_iterations:
            self._iterations_of(ended.seq).set_state(ended.position, ended.state)
        for requeued in self._saved.requeued:
            self._count_attempt(requeued)
        for past in self._saved.past:
            self._add_past(past)
        for held in self._saved.held:
            core.holds.hold(self._new_jobs[held.seq].job, held.position, held.since)
        attempts = [self._attempt(saved) for saved in self._saved.open_attempts]
        for job, rest in rests:
            if rest is not None:
                assert job.iterations is not None
                job.iterations.make_queued_final(rest)
        for new_job in self._new_jobs.values():
            core.register(new_job.job)
        core.jobs = dict(sorted(core.jobs.items(), key=lambda item: item[1].seq))
        for seq, position in self._saved.begun:
            if (begun := core.find_seq(seq)) is not None:
                note_begun(core, begun, position)
        for attempt in attempts:
            register_existing(core, attempt)
        for new_job in self._new_jobs.values():
            # A prerequisite may have been removed after it succeeded, and a later job may have got its name.
            find_prerequisites(new_job, core.jobs)
            new_job.prerequisites = tuple(
                [other for other in new_job.prerequisites if not is_later(other.job, new_job.job)]
            )
            enqueue(core, new_job, accepted_before=True)
        for held in self._saved.held:
            if held.position >= 0:
                self._keep_held(held)
        for past in self._saved.past:
            self._prepare_next_attempt(past)
        self._handle_ledger_records()
        self._give_up_unreported_attempts()
        for new_job in self._new_jobs.values():
            _finish_if_done(core, new_job.job)
        effects, core.effects = core.effects, []
        return effects

    def _add_final(self, final: FinalJob) -> None:
        job = Job(final.seq, final.name, b"", final.submitted)
        job.message = final.message
        job.spec = None
        job.state = final.state
        if final.iterations is not None:
            job.iterations = _ended_iterations(final.iterations)
        self._core.register(job)

    def _add_unfinished(self, saved: UnfinishedJob) -> Job:
        job = Job(saved.seq, saved.name, saved.spec, saved.submitted)
        try:
            new_job = prepare(self._core, job, saved.description)
        except DescriptionError:  # its share fitted into the nodes that existed when it was submitted
            new_job = prepare(self._core, job, unshared(saved.description))
        self._new_jobs[saved.seq] = new_job
        if saved.started and job.iterations is not None:
            job.state = EXECUTING
            job.iterations.began = saved.started
        return job

    def _iterations_of(self, seq: int) -> Iterations:
        iterations = self._new_jobs[seq].job.iterations
        assert iterations is not None
        return iterations

    def _count_attempt(self, requeued: RequeuedAttempt) -> None:
        job = self._new_jobs[requeued.seq].job
        if job.iterations is None:
            job.last_number = requeued.number
        else:
            job.iterations.last_numbers[requeued.position] = requeued.number

    def _add_past(self, saved: PastAttempts) -> None:
        past = self._core.past.setdefault(saved.seq, {})[saved.position] = Past()
        past.attempts = saved.attempts
        past.retries = dict(saved.retries)
        past.failed_node = saved.failed_node if saved.failed_node in self._core.pool else ""
        past.unstartable = saved.unstartable
        past.steps = sum(count for cause, count in saved.retries.items() if cause in GROWING_CAUSES)

    def _prepare_next_attempt(self, past: PastAttempts) -> None:
        """Let a job that was retried pause for the rest of its pause, with the demand that it had."""
        core, job = self._core, self._new_jobs[past.seq].job
        state = core.state_of(job, past.position)
        if (past.retries or past.failed_node) and not (job.state.is_final or state.is_final):
            ready = prepare_next_attempt(core, job, past.position, past.next_at if state is QUEUED else 0.0)
            if ready and (past.seq, past.position) not in core.paused:
                make_position_ready(core, job, past.position)

    def _keep_held(self, held: HeldPosition) -> None:
        """Give an iteration that was held or released on its own a queue entry of its own."""
        core, job = self._core, self._new_jobs[held.seq].job
        if core.state_of(job, held.position) is QUEUED:
            entry = entry_of(job, held.position)
            entry.withdraw(held.position)
            set_demand(core, job, held.position, entry.demand)
            if is_met(job, held.position):
                make_position_ready(core, job, held.position)

    def _attempt(self, saved: OpenAttempt) -> Attempt:
        job = self._new_jobs[saved.seq].job
        attempt = Attempt(job, saved.position, saved.number, saved.grant, saved.scheduled)
        attempt.kill_requested = saved.kill_requested
        attempt.stop_requested = saved.stop_requested
        attempt.pid = saved.pid
        attempt.started = saved.started
        attempt.started_by = self._core.now
        state = EXECUTING if saved.started else SCHEDULED
        if saved.position < 0:
            job.state = state
        else:
            self._iterations_of(saved.seq).set_state(saved.position, state)
        return attempt

    def _handle_ledger_records(self) -> None:
        """Handle ends first: an attempt on a node that is gone is lost, unless it has ended."""
        core, records = self._core, self._ledgers.records
        multinode = {attempt.id for attempt in core.attempts.values() if len(attempt.grant.parts) > 1}
        multinode.update(record.id for record in records if isinstance(record, Started) and len(record.grant) > 1)
        for record in records:
            # The agent of one node does not know whether processes on the other nodes have ended.
            if isinstance(record, Ended) and record.id not in multinode:
                attempt_ended(core, AttemptEnded(record))
        for record in records:
            if isinstance(record, Started):
                attempt_started(core, AttemptStarted(record))

    def _give_up_unreported_attempts(self) -> None:
        """Give up attempts on nodes that are gone; the agents of all other nodes report the end of their attempts."""
        core, gone = self._core, self._ledgers.agents
        for attempt in list(core.orphaned):
            nodes = [part.node for part in attempt.grant.parts]
            if all(node in core.pool or (core.fallback_node and node not in gone) for node in nodes):
                continue
            if attempt.started or not self._ledgers.complete:
                lose_attempt(core, attempt, orphan_reason(core, attempt))
            else:
                requeue_attempt(core, attempt)


def _ended_iterations(saved: EndedIterations) -> Iterations:
    iterations = Iterations(saved.indices)
    for position, state in saved.known:
        iterations.set_state(position, state)
    iterations.make_queued_final(saved.rest)
    return iterations


def _finish_if_done(core: CoreState, job: Job) -> None:
    """Finish a job whose iterations have all ended: the earlier manager died before it recorded the job's end."""
    iterations = job.iterations
    if iterations is not None and not job.state.is_final and not iterations.unfinished:
        make_final(core, FinalState(job, -1, iterations.final_state()))
