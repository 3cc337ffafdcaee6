"""Everything the core knows, as plain data with the few changes that keep it consistent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from qcg.pilotjob.core.effects import Effect, NoAttemptLeft, Transition
from qcg.pilotjob.core.job_states import SUCCEED, State
from qcg.pilotjob.core.queue import Queue
from qcg.pilotjob.core.records import Attempt, Cleanup, Grant, Job, Lane
from qcg.pilotjob.core.resources import NodeSpec, Pool


class CoreState:
    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        *,
        rerun_lost: bool = False,
        patience: float = math.inf,
        fallback_node: str = "",
    ) -> None:
        self.nodes = tuple(nodes)
        self.fallback_node = fallback_node
        """The node whose agent also has what was started on nodes that are not part of this run any more; empty where
        nobody has."""
        self.pool = Pool(nodes)
        self.queue = Queue(self.nodes)
        self.jobs: dict[str, Job] = {}
        self.attempts: dict[str, Attempt] = {}
        """All runs that hold resources, or stand behind one that does, by id."""
        self.attempts_on: dict[str, dict[Attempt, None]] = {}
        """The same by node, those with parts on several nodes under each of them."""
        self.lanes: dict[Lane, None] = {}
        """Those in which somebody stands behind another; the one that changed last comes last."""
        self.prefillable: dict[Attempt, None] = {}
        """Runs that got their cores since work was sent ahead, and that others may stand behind."""
        self.orphaned: dict[Attempt, Grant] = {}
        """Those that an earlier manager gave what is not part of this run any more, and what they hold of the rest."""
        self.cleanups: dict[str, Cleanup] = {}
        """Those that have ended somewhere, or must, and are not known to be gone from all their nodes; by id."""
        self.unreachable_since: dict[str, float] = {}
        """Since when nothing was heard of a node, of those that were heard of before or asked about."""
        self.lost_nodes: set[str] = set()
        """Nodes that are given up until they come back."""
        self.deadline: float | None = None
        """Nothing is started that would take longer than until then."""
        self.warned: set[str] = set()
        """Runs that were told that the time is almost over."""
        self.suspended = False
        """Nothing is started any more."""
        self.rerun_lost = rerun_lost
        self.losses: dict[tuple[int, int], int] = {}
        """By job and position, how many runs were lost under this manager, where that is not none."""
        self.patience = patience
        """Seconds after which a request that is never served is not overtaken any more."""
        self.next_seq = 1
        self.job_counts = [0] * len(State)
        self.iteration_counts = [0] * len(State)
        """Of iterated jobs alone."""
        self.executing = 0
        """How many runs have started."""
        self._by_seq: dict[int, Job] | None = None
        self.now = 0.0
        self.effects: list[Effect] = []

    @property
    def unfinished(self) -> int:
        return sum(self.job_counts[:SUCCEED])

    def find_seq(self, seq: int) -> Job | None:
        """The job with this number: asked for only when hosts tell of runs that the books do not have."""
        if self._by_seq is None:
            self._by_seq = {job.seq: job for job in self.jobs.values()}
        return self._by_seq.get(seq)

    def register(self, job: Job) -> None:
        self._by_seq = None
        self.jobs[job.name] = job
        self.job_counts[job.state] += 1
        if job.iterations is not None:
            for state, count in enumerate(job.iterations.counts):
                self.iteration_counts[state] += count

    def unregister(self, job: Job) -> None:
        self._by_seq = None
        del self.jobs[job.name]
        self.job_counts[job.state] -= 1
        if job.iterations is not None:
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
    ) -> None:
        """Put a job (position -1) or one iteration into a state, and tell."""
        if position < 0:
            counts = self.job_counts
            counts[job.state] -= 1
            counts[state] += 1
            job.state = state
            if message:
                job.message = message
        else:
            assert job.iterations is not None
            self.iteration_counts[job.iterations.states[position]] -= 1
            self.iteration_counts[state] += 1
            job.iterations.set_state(position, state)
        self.effects.append(Transition(job, position, state, self.now, attempt, exit_code, message))

    def state_of(self, job: Job, position: int) -> State:
        return job.state if position < 0 or job.iterations is None else job.iterations.state(position)

    def add_attempt(self, attempt: Attempt) -> None:
        self.attempts[attempt.id] = attempt
        if attempt.started:
            self.executing += 1
        for part in attempt.grant.parts:
            self.attempts_on.setdefault(part.node, {})[attempt] = None
        if attempt.position < 0:
            attempt.job.attempt = attempt
        else:
            assert attempt.job.iterations is not None
            attempt.job.iterations.attempts[attempt.position] = attempt

    def remove_attempt(self, attempt: Attempt) -> None:
        """The run holds nothing any more."""
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
        if attempt.lane is None or self._leave(attempt.lane, attempt):
            self.pool.release(self.orphaned.pop(attempt, attempt.grant))
        if self.suspended and not self.attempts:
            self.effects.append(NoAttemptLeft())

    def attempts_of_nodes(self, nodes: Iterable[str]) -> list[Attempt]:
        """All that have a part on these nodes, or that an agent of these nodes has."""
        nodes = list(nodes)
        attempts = dict.fromkeys(attempt for node in nodes for attempt in self.attempts_on.get(node, ()))
        attempts.update(
            dict.fromkeys(attempt for attempt in self.orphaned if self.agent_node(attempt.grant.parts[0].node) in nodes)
        )
        return list(attempts)

    def agent_node(self, node: str) -> str:
        """The node whose agent knows what was started on this one; empty when nobody does any more."""
        return node if node in self.pool else self.fallback_node

    def _leave(self, lane: Lane, attempt: Attempt) -> bool:
        """A run of a lane is over. True when it was the last of them."""
        was_first = lane.first is attempt
        del lane.attempts[attempt]
        if len(lane.attempts) < 2:
            self.lanes.pop(lane, None)
        if was_first and lane.attempts:
            self.prefillable[lane.first] = None
            self.watch(lane)
        return not lane.attempts

    def watch(self, lane: Lane) -> None:
        """Those that stand behind its first run must not wait for long."""
        if len(lane.attempts) > 1 and not lane.retracted:
            self.lanes.pop(lane, None)
            self.lanes[lane] = None


def name_of(job: Job, position: int) -> str:
    """`job`, or `job:3` with the index that users know."""
    if position < 0 or job.iterations is None:
        return job.name
    return f"{job.name}:{job.iterations.indices[position]}"
