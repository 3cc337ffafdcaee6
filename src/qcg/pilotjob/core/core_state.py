"""The state of the core: plain data, and the few changes that keep it consistent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from qcg.pilotjob.core.effects import Effect, Transition
from qcg.pilotjob.core.failure_limit import FailureLimit
from qcg.pilotjob.core.held_jobs import Holds
from qcg.pilotjob.core.job_states import SUCCEED, State
from qcg.pilotjob.core.pool import EMPTY, Pool
from qcg.pilotjob.core.queue import Queue
from qcg.pilotjob.core.records import Attempt, Cleanup, Grant, Job, Lane, NodeHealth, Past
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.shutdown import Disposition
from qcg.pilotjob.description.model import RetryPolicy

if TYPE_CHECKING:
    from qcg.pilotjob.core.node_group import NodeGroup
    from qcg.pilotjob.core.reservation import Reservation


class CoreState:
    """Jobs, attempts, queue and resources of one manager."""

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        *,
        rerun_lost: bool = False,
        retry: RetryPolicy | None = None,
        patience: float = math.inf,
        fallback_node: str = "",
        counters: Mapping[str, int] = EMPTY,
        drain_after: int = 0,
        stop_after: int = 0,
    ) -> None:
        """`counters`: the named counters of the run."""
        self.nodes = tuple(nodes)
        self.fallback_node = fallback_node
        """Node whose host also answers for attempts on nodes that have left the run; empty if there is none."""
        self.pool = Pool(nodes, counters)
        self.queue = Queue(self.pool)
        self.jobs: dict[str, Job] = {}
        self.attempts: dict[str, Attempt] = {}
        """Attempts that hold resources or wait in a lane, by id."""
        self.attempts_on: dict[str, dict[Attempt, None]] = {}
        """The same attempts by node; an attempt on several nodes is listed under each of them."""
        self.lanes: dict[Lane, None] = {}
        """Lanes with at least two attempts that are not retracted; the lane that changed last comes last."""
        self.prefillable: dict[Attempt, None] = {}
        """Attempts that got their cores since the last prefill and can take others behind them."""
        self.orphaned: dict[Attempt, Grant] = {}
        """Attempts of an earlier manager whose grant is no longer fully part of the run, with the resources that they
        still hold."""
        self.cleanups: dict[str, Cleanup] = {}
        """Attempts that have ended, or must end, and are not known to be gone from all their nodes; by id."""
        self.first_reports: dict[str, float] = {}
        """By node, the time of the first report of its host to this manager. Attempts scheduled before that time belong
        to an earlier manager."""
        self.unreachable_since: dict[str, float] = {}
        """Time since which each unreachable node has been silent."""
        self.unreachable_reasons: dict[str, str] = {}
        """Why nodes are unreachable, by node; nodes without a known reason are left out."""
        self.lost_nodes: set[str] = set()
        """Nodes given up as lost until their host reports again."""
        self.deadline: float | None = None
        """Time by which every attempt must have ended; a job with a longer wall time is not started."""
        self.warned: set[str] = set()
        """Ids of attempts that got the signal that time is almost over."""
        self.shutdown: Disposition | None = None
        """What the shutdown of this manager does with jobs; None before it. From then on nothing is started."""
        self.failure_limit = FailureLimit(stop_after)
        self.rerun_lost = rerun_lost
        self.losses: dict[tuple[int, int], int] = {}
        """Number of attempts lost under this manager, by job number and position."""
        self.retry = retry
        """Retry policy of jobs without one of their own."""
        self.past: dict[int, dict[int, Past]] = {}
        """Earlier attempts by job number and position, for jobs and iterations that were queued again."""
        self.paused: dict[tuple[int, int], tuple[float, Job]] = {}
        """Jobs and iterations that pause, with the time of their next attempt, by job number and position."""
        self.pauses: list[tuple[float, int, int]] = []
        """Heap of the same pauses, and of pauses that were given up."""
        self.reservations: dict[NodeGroup, Reservation] = {}
        """The last reservation of each group, for the next scheduling pass."""
        self.holds = Holds()
        """Jobs and iterations that are held."""
        self.begun: dict[int, bytearray] = {}
        """By job number, which positions have begun to run without success so far; a byte for each of them."""
        self.estimates = 0
        """Version of the learned durations: raised with each new longest duration of a request."""
        self.health = NodeHealth(drain_after)
        """Nodes that fail for reasons of their own, and drained nodes."""
        self.patience = patience
        """Seconds after which a waiting request may not be overtaken any more."""
        self.next_seq = 1
        self.job_counts = [0] * len(State)
        self.iteration_counts = [0] * len(State)
        """Number of iterations in each state, over all iterated jobs."""
        self.iterated_counts = [0] * len(State)
        """Number of jobs with iterations in each state."""
        self.starts = 0
        """Number of attempts that began to run under this manager, or ran already when it began."""
        self.failed_and_repeated = 0
        """Number of attempts that have failed under this manager, and whose jobs were queued again at once."""
        self.core_seconds = 0.0
        """Core-seconds for which attempts ran that have ended under this manager."""
        self.executing = 0
        """Number of attempts that are running."""
        self._by_seq: dict[int, Job] | None = None
        self.now = 0.0
        """Time of the event being handled, by the manager's clock."""
        self.effects: list[Effect] = []

    @property
    def unfinished(self) -> int:
        return sum(self.job_counts[:SUCCEED])

    @property
    def unit_counts(self) -> list[int]:
        """Number of iterations, and of jobs without iterations, in each state."""
        counts = zip(self.job_counts, self.iterated_counts, self.iteration_counts, strict=True)
        return [jobs - iterated + iterations for jobs, iterated, iterations in counts]

    @property
    def unfinished_iterations(self) -> int:
        return sum(self.iteration_counts[:SUCCEED])

    def find_seq(self, seq: int) -> Job | None:
        """The job with this number. Rarely needed: only when a host reports an attempt that is not in `attempts`."""
        if self._by_seq is None:
            self._by_seq = {job.seq: job for job in self.jobs.values()}
        return self._by_seq.get(seq)

    def register(self, job: Job) -> None:
        self._by_seq = None
        self.jobs[job.name] = job
        self.job_counts[job.state] += 1
        if job.iterations is not None:
            self.iterated_counts[job.state] += 1
            for state, count in enumerate(job.iterations.counts):
                self.iteration_counts[state] += count

    def unregister(self, job: Job) -> None:
        self._by_seq = None
        self.past.pop(job.seq, None)
        self.holds.drop(job)
        self.begun.pop(job.seq, None)
        del self.jobs[job.name]
        self.job_counts[job.state] -= 1
        if job.iterations is not None:
            self.iterated_counts[job.state] -= 1
            for state, count in enumerate(job.iterations.counts):
                self.iteration_counts[state] -= count

    def transition(
        self,
        job: Job,
        position: int,
        state: State,
        attempt: Attempt | None = None,
        exit_code: int | None = None,
        message: str = "",
        at: float | None = None,
    ) -> None:
        """Put a job (position -1) or one iteration into a state, and emit the transition.

        `at`: when it happened, by the clock of a host; None: now."""
        if position < 0:
            counts = self.job_counts
            counts[job.state] -= 1
            counts[state] += 1
            if job.iterations is not None:
                self.iterated_counts[job.state] -= 1
                self.iterated_counts[state] += 1
            job.state = state
            if message:
                job.message = message
        else:
            assert job.iterations is not None
            self.iteration_counts[job.iterations.states[position]] -= 1
            self.iteration_counts[state] += 1
            job.iterations.set_state(position, state)
        at = self.now if at is None else at
        self.effects.append(Transition(job, position, state, at, attempt, exit_code, message))

    def state_of(self, job: Job, position: int) -> State:
        return job.state if position < 0 or job.iterations is None else job.iterations.state(position)

    def past_attempts(self, job: Job, position: int) -> int:
        """The number of earlier attempts of a job or iteration that were started."""
        past = self.past_of(job, position)
        return 0 if past is None else past.attempts

    def past_of(self, job: Job, position: int) -> Past | None:
        """The earlier attempts of a job or iteration; None if it was never queued again."""
        of_job = self.past.get(job.seq)
        return None if of_job is None else of_job.get(position)

    def add_attempt(self, attempt: Attempt) -> None:
        self.attempts[attempt.id] = attempt
        if attempt.started:
            self.executing += 1
            self.starts += 1
        if self.past:
            attempt.ordinal = self.past_attempts(attempt.job, attempt.position) + 1
        for part in attempt.grant.parts:
            self.attempts_on.setdefault(part.node, {})[attempt] = None
        if attempt.position < 0:
            attempt.job.attempt = attempt
        else:
            assert attempt.job.iterations is not None
            attempt.job.iterations.attempts[attempt.position] = attempt

    def remove_attempt(self, attempt: Attempt) -> None:
        """Forget an attempt that is over, and release its resources unless others in its lane take them over."""
        del self.attempts[attempt.id]
        if attempt.started:
            self.executing -= 1
        for part in attempt.grant.parts:
            del self.attempts_on[part.node][attempt]
        if attempt.position < 0:
            attempt.job.attempt = None
        else:
            assert attempt.job.iterations is not None
            del attempt.job.iterations.attempts[attempt.position]
        if attempt.lane is None or self._leave_lane(attempt.lane, attempt):
            self.pool.release(self.orphaned.pop(attempt, attempt.grant))

    def attempts_of_nodes(self, nodes: Iterable[str]) -> list[Attempt]:
        """Attempts with a part on these nodes, or known to a host of these nodes."""
        nodes = list(nodes)
        attempts = dict.fromkeys(attempt for node in nodes for attempt in self.attempts_on.get(node, ()))
        attempts.update(
            dict.fromkeys(attempt for attempt in self.orphaned if self.host_node(attempt.grant.parts[0].node) in nodes)
        )
        return list(attempts)

    def host_node(self, node: str) -> str:
        """The node whose host knows the attempts started on this node; empty when no host does."""
        return node if node in self.pool else self.fallback_node

    def _leave_lane(self, lane: Lane, attempt: Attempt) -> bool:
        """Take an attempt that is over out of its lane; True when the lane is empty."""
        was_first = lane.first is attempt
        del lane.attempts[attempt]
        if len(lane.attempts) < 2:
            self.lanes.pop(lane, None)
        if was_first and lane.attempts:
            self.prefillable[lane.first] = None
            self.watch(lane)
        return not lane.attempts

    def watch(self, lane: Lane) -> None:
        """Have the attempts behind the first one retracted if it takes too long."""
        if len(lane.attempts) > 1 and not lane.retracted:
            self.lanes.pop(lane, None)
            self.lanes[lane] = None


def name_of(job: Job, position: int) -> str:
    """The name shown to users: `job`, or `job:3` with the index of the iteration."""
    if position < 0 or job.iterations is None:
        return job.name
    return f"{job.name}:{job.iterations.indices[position]}"
