"""Build the core's books anew from what the journal remembers. What follows from it comes out as effects, as ever."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from qcg.pilotjob.core.attempt_end import lose_attempt, requeue_attempt
from qcg.pilotjob.core.attempt_events import attempt_ended, attempt_started
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.events import AttemptEnded, AttemptStarted
from qcg.pilotjob.core.finalize import FinalState, make_final
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import EXECUTING, SCHEDULED, State
from qcg.pilotjob.core.orphaned import orphan_reason, register_existing
from qcg.pilotjob.core.records import Attempt, Grant, Job
from qcg.pilotjob.core.submission import NewJob, enqueue, find_prerequisites, prepare
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.model import Amount, JobDescription
from qcg.pilotjob.host.records import Ended, Started

_decode = msgspec.msgpack.Decoder(JobDescription).decode


class Restoration:
    """Tell it everything, in this order: final jobs, unfinished ones, what is known of their iterations and runs."""

    def __init__(self, core: CoreState, now: float, max_seq: int) -> None:
        self._core = core
        core.now = now
        core.next_seq = max_seq + 1
        self._newcomers: dict[int, NewJob] = {}
        self._rests: list[tuple[Job, State]] = []
        self._runs: list[Attempt] = []
        self._told: list[Started | Ended] = []
        self._gone: Collection[str] = ()
        self._all_told = True

    def final_job(
        self, seq: int, name: str, state: State, submitted: float, message: str, iterations: Iterations | None
    ) -> None:
        job = Job(seq, name, b"", submitted)
        job.message = message
        job.spec = None
        job.state = state
        job.iterations = iterations
        self._core.register(job)

    def unfinished_job(self, seq: int, name: str, submitted: float, spec: bytes, began: float) -> None:
        description = _decode(spec)
        job = Job(seq, name, spec, submitted)
        try:
            self._newcomers[seq] = prepare(self._core, job, description)
        except DescriptionError:  # its share fitted into what existed when it was submitted
            self._newcomers[seq] = prepare(self._core, job, _unshared(description))
        if began and job.iterations is not None:
            job.state = EXECUTING
            job.iterations.began = began

    def settled_iteration(self, seq: int, position: int, state: State) -> None:
        iterations = self._newcomers[seq].job.iterations
        if iterations is not None:
            iterations.set_state(position, state)

    def lost_attempt(self, seq: int, position: int, number: int) -> None:
        """A run of this attempt was given up; the next one counts on from there."""
        job = self._newcomers[seq].job
        if job.iterations is None:
            job.attempts_made = number
        else:
            job.iterations.attempts_made[position] = number

    def rest(self, seq: int, state: State) -> None:
        """The iterations that had not started were ended together."""
        self._rests.append((self._newcomers[seq].job, state))

    def run_under_way(
        self,
        attempt: tuple[int, int, int, Grant, float],
        *,
        killed: bool,
        stopped: bool = False,
        pid: int = 0,
        started: float = 0.0,
    ) -> None:
        """(seq, position, attempt, grant, scheduled). Its host will tell how it ends, and whether it has started, where
        that is not known."""
        seq, position, number, grant, scheduled = attempt
        job = self._newcomers[seq].job
        restored = Attempt(job, position, number, grant, scheduled)
        restored.killed = killed
        restored.stopped = stopped
        restored.pid = pid
        restored.started = started
        state = EXECUTING if started else SCHEDULED
        if position < 0:
            job.state = state
        else:
            assert job.iterations is not None
            job.iterations.set_state(position, state)
        self._runs.append(restored)

    def told(self, records: Iterable[Started | Ended], gone: Collection[str] = (), *, everything: bool = True) -> None:
        """What agents have told that are not there any more, `gone` by name. `everything`: what they do not tell of has
        never begun."""
        self._told += records
        self._gone = gone
        self._all_told = everything

    def finish(self) -> list[Effect]:
        """Put everything in its place."""
        core = self._core
        for job, state in self._rests:
            assert job.iterations is not None
            job.iterations.make_queued_final(state)
        for new_job in self._newcomers.values():
            core.register(new_job.job)
        core.jobs = dict(sorted(core.jobs.items(), key=lambda item: item[1].seq))
        for attempt in self._runs:
            register_existing(core, attempt)
        for new_job in self._newcomers.values():
            # Jobs that it waited for may have been removed after they succeeded,
            find_prerequisites(new_job, core.jobs)
            # and others may have come later under their names.
            new_job.prerequisites = tuple(
                [other for other in new_job.prerequisites if not _is_later(other.job, new_job.job)]
            )
            enqueue(core, new_job, accepted_before=True)
        self._take_in_told()
        self._give_up_unreachable()
        for new_job in self._newcomers.values():
            _finish_if_done(core, new_job.job)
        effects, core.effects = core.effects, []
        return effects

    def _take_in_told(self) -> None:
        """Ends come first: a run that has begun on a node that is gone is lost, unless it has ended."""
        core, now = self._core, self._core.now
        spread = {attempt.id for attempt in core.attempts.values() if len(attempt.grant.parts) > 1}
        spread.update(record.id for record in self._told if isinstance(record, Started) and len(record.grant) > 1)
        for record in self._told:
            # What became of the others on their other nodes, nobody can tell any more.
            if isinstance(record, Ended) and record.id not in spread:
                core.now = record.at
                attempt_ended(core, AttemptEnded(record))
        for record in self._told:
            if isinstance(record, Started):
                core.now = record.at
                attempt_started(core, AttemptStarted(record))
        core.now = now

    def _give_up_unreachable(self) -> None:
        """Agents that are here tell what became of their runs, whatever these had."""
        core = self._core
        for attempt in list(core.orphaned):
            nodes = [part.node for part in attempt.grant.parts]
            if all(node in core.pool or (core.fallback_node and node not in self._gone) for node in nodes):
                continue
            if attempt.started or not self._all_told:
                lose_attempt(core, attempt, orphan_reason(core, attempt))
            else:
                requeue_attempt(core, attempt)


def _unshared(description: JobDescription) -> JobDescription:
    """What it wants at least, where there is too little to share."""
    assert description.sharing is not None
    request = description.request
    least = (request.cores if description.sharing.of == "cores" else request.nodes) or Amount()
    wanted = msgspec.structs.replace(request, **{description.sharing.of: Amount(least.least, least.least)})
    return msgspec.structs.replace(description, sharing=None, request=wanted)


def _is_later(other: Job, job: Job) -> bool:
    """Whether it was submitted after `job`: jobs of one submission may wait for each other in any order."""
    return other.seq > job.seq and other.submitted > job.submitted


def _finish_if_done(core: CoreState, job: Job) -> None:
    """All its iterations had ended, and the manager had no time to say that of the job."""
    iterations = job.iterations
    if iterations is not None and not job.state.is_final and not iterations.unfinished:
        make_final(core, FinalState(job, -1, iterations.final_state()))


def known_iterations(indices: range, state: State, known: Iterable[tuple[int, State]]) -> Iterations:
    """The iterations of a final job: those that are known, and all others in `state`."""
    iterations = Iterations(indices)
    for position, settled in known:
        iterations.set_state(position, settled)
    iterations.make_queued_final(state)
    return iterations
