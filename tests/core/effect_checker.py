"""Checks the guarantees of the core from its effects alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from qcg.pilotjob.core.effects import (
    Added,
    AllDone,
    Effect,
    Held,
    IterationsFinal,
    Launch,
    QueuedIterationsFinal,
    Redescribed,
    Released,
    Removed,
    Requeued,
    Reran,
    Transition,
)
from qcg.pilotjob.core.feasibility import why_never
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.node_health import AVOID_SECONDS
from qcg.pilotjob.core.outcomes import entries_of
from qcg.pilotjob.core.pool import EMPTY
from qcg.pilotjob.core.records import Attempt, Grant, PastAttempt
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import WHOLE_GPU, Amount, ExtraResources, JobDescription, ResourceRequest
from tests.core.reference import grown, requests_of, verdict

Unit = tuple[int, int]
"""(number of the job, position); position -1 for a job without iterations."""
Demand = tuple[ResourceRequest, float | None]
"""A resource request with its wall time."""
Turn = tuple[int, int, int]
"""The place of an iteration in the queue: the negative priority, number of the job, position."""


class CheckedJob:
    """The state of a job as known from effects."""

    def __init__(self, seq: int, description: JobDescription, specs: list[NodeSpec]) -> None:
        self.seq = seq
        self.description = description
        self.iterated = description.iteration is not None
        self.indices: list[int] = list(description.iteration.indices()) if description.iteration is not None else [-1]
        self.compute_requests(specs)
        self.states = dict.fromkeys(self.requests, State.QUEUED)
        self.state = State.QUEUED
        self.retries: dict[int, list[str]] = {position: [] for position in self.requests}
        """Causes of the attempts of each iteration that were retried."""
        self.pauses = dict.fromkeys(self.requests, 0.0)
        self.on_hold = dict.fromkeys(self.requests, False)
        self.priorities = dict.fromkeys(self.requests, description.priority)
        self.after: list[tuple[CheckedJob, str, str]] = []
        """Prerequisites: the job, an index, `${it}` for the same index, or empty for the whole job, and the kind."""
        self.begun: set[int] = set()
        """Positions that have begun to run."""
        self.avoids_until = dict.fromkeys(self.requests, 0.0)
        """Until when each iteration may avoid a node, so that later ones may be started before it."""

    def compute_requests(self, specs: list[NodeSpec]) -> None:
        first = 0 if self.iterated else -1
        self.specs = specs
        self.requests = dict(enumerate(requests_of(self.description, specs), first))

    def redescribe(self, description: JobDescription) -> None:
        self.description = description
        self.compute_requests(self.specs)
        self.priorities = dict.fromkeys(self.requests, description.priority)

    def demand(self, position: int) -> Demand:
        """The request and wall time of the next attempt."""
        request, wall_time = grown(self.description, self.requests[position], self.retries[position], self.specs)
        return request, wall_time or None

    def turn(self, position: int) -> Turn:
        return -self.priorities[position], self.seq, position

    def set_hold(self, position: int, *, held: bool) -> None:
        """Note that a job (position -1) with all its iterations, or an iteration, is held or released."""
        self.on_hold.update(dict.fromkeys(self.requests if position < 0 else [position], held))

    def is_ready(self, position: int) -> bool:
        """Whether the iteration is not held, and all its dependencies are met."""
        if self.on_hold[position]:
            return False
        for other, index, kind in self.after:
            place = -1
            if index:
                place = other.indices.index(self.indices[position] if index == "${it}" else int(index))
            state = other.states[place] if index else other.state
            begun = place in other.begun if index else bool(other.begun)
            if verdict(kind, {state.name}, begun) != "met":
                return False
        return True


class EffectChecker:
    def __init__(self, specs: list[NodeSpec], counters: Mapping[str, int] = EMPTY) -> None:
        """`counters`: the named counters of the run."""
        self.counters = counters
        self.specs = {spec.name: spec for spec in specs}
        self.jobs: dict[str, CheckedJob] = {}
        self.held: dict[str, Grant] = {}
        self.ids: set[str] = set()
        """Ids of all attempts so far."""
        self.over: Counter[Unit] = Counter()
        """Numbers of attempts that are over, without those that were taken back before they started."""
        self.submitting: dict[str, JobDescription] = {}
        """Descriptions of the next submission by name."""

    def check(self, effects: list[Effect], *, scheduling: bool = False, now: float = 0.0) -> None:
        """Check the effects of one event."""
        ready = self._ready(now) if scheduling else []
        launched: set[Turn] = set()
        behind: set[Turn] = set()
        ended = 0
        for effect in effects:
            match effect:
                case Added(jobs):
                    self._added([(job.name, job.seq) for job in jobs])
                case Transition():
                    ended += self._transition(effect)
                case QueuedIterationsFinal(job, state):
                    states = self.jobs[job.name].states
                    assert State.QUEUED in states.values()
                    states.update({key: state for key, value in states.items() if value is State.QUEUED})
                case IterationsFinal(job, bitmap, state):
                    states = self.jobs[job.name].states
                    some = [position for position, is_set in enumerate(bitmap) if is_set]
                    assert {states[position] for position in some} == {State.QUEUED}
                    states.update(dict.fromkeys(some, state))
                    assert State.QUEUED in states.values()
                case Launch(attempt):
                    self._launch(attempt)
                    turn = self.jobs[attempt.job.name].turn(attempt.position)
                    launched.add(turn)
                    if attempt.lane is not None:
                        behind.add(turn)
                case Requeued(attempt, past):
                    del self.held[attempt.id]
                    self.over[attempt.job.seq, attempt.position] += past is not None
                    if past is not None and past.counted:
                        self._retried(attempt, past)
                    if past is not None and past.cause != "closed":
                        avoids_until = self.jobs[attempt.job.name].avoids_until
                        avoids_until[attempt.position] = max(now, past.next_at) + AVOID_SECONDS
                case Reran(job, positions, left, was_final):
                    self._run_again(job.name, positions, left, was_final)
                case Held(job, position):
                    self.jobs[job.name].set_hold(position, held=True)
                case Released(job, position):
                    self.jobs[job.name].set_hold(position, held=False)
                case Redescribed(job):
                    assert job.spec is not None
                    self.jobs[job.name].redescribe(msgspec.msgpack.decode(job.spec, type=JobDescription))
                case Removed(job):
                    ended += not self.jobs.pop(job.name).state.is_final
                case AllDone():
                    assert not any(self.unfinished())
        done = sum(isinstance(effect, AllDone) for effect in effects)
        assert done == (ended > 0 and not any(self.unfinished()))
        self._check_arrival_order(ready, launched, now)
        self._check_prefill_order(ready, launched, behind)

    def nodes_changed(self, specs: list[NodeSpec]) -> None:
        """Note that the run continues on other nodes."""
        self.specs = {spec.name: spec for spec in specs}
        for job in self.jobs.values():
            job.compute_requests(specs)

    def _retried(self, attempt: Attempt, past: PastAttempt) -> None:
        """Check that the policy of the job allows another attempt."""
        job = self.jobs[attempt.job.name]
        policy = job.description.retry
        assert policy is not None
        retries = job.retries[attempt.position]
        retries.append(past.cause)
        assert retries.count(past.cause) <= policy.budgets[past.cause]
        job.pauses[attempt.position] = past.next_at

    def _run_again(self, name: str, positions: tuple[int, ...], left: tuple[int, ...], was_final: bool) -> None:
        """Check that only jobs and iterations that ended without success are rerun."""
        job = self.jobs[name]
        bad = {State.FAILED, State.CANCELED, State.OMITTED}
        assert {job.states[position] for position in positions} <= bad
        assert set(left) == {key for key, state in job.states.items() if state in bad and job.iterated} - {*positions}
        assert was_final == job.state.is_final
        for position in positions:
            job.states[position] = State.QUEUED
            job.retries[position] = []
            job.pauses[position] = 0.0
        if was_final:
            job.state = State.QUEUED

    def unfinished(self) -> Iterator[str]:
        return (name for name, job in self.jobs.items() if not job.state.is_final)

    def _added(self, names: list[tuple[str, int]]) -> None:
        for name, seq in names:
            assert name not in self.jobs
            self.jobs[name] = CheckedJob(seq, self.submitting[name], list(self.specs.values()))
        for name, _ in names:
            job = self.jobs[name]
            for kind, entry in entries_of(job.description):
                other, _, index = entry.partition(":")
                job.after.append((self.jobs[other], index, kind))

    def _ready(self, now: float) -> list[tuple[Turn, Demand]]:
        return [
            (job.turn(position), job.demand(position))
            for job in self.jobs.values()
            for position, state in job.states.items()
            if state is State.QUEUED and job.is_ready(position) and job.pauses[position] <= now
        ]

    def _check_arrival_order(self, ready: list[tuple[Turn, Demand]], launched: set[Turn], now: float) -> None:
        avoiding = {
            (job.seq, position)
            for job in self.jobs.values()
            for position, until in job.avoids_until.items()
            if now < until
        }
        for turn, demand in ready:
            if turn not in launched and turn[1:] not in avoiding:
                overtaken = [
                    other for other, wanted in ready if other in launched and other > turn and wanted == demand
                ]
                assert not overtaken, f"{overtaken} come after {turn} with the same request and were started before"

    def _check_prefill_order(self, ready: list[tuple[Turn, Demand]], launched: set[Turn], behind: set[Turn]) -> None:
        """Check that prefilled jobs were first in the queue, except jobs without enough time or nodes left."""
        walls = {job.seq: job.description.wall_time for job in self.jobs.values()}
        nodes = list(self.specs.values())
        waiting = []
        awaited: set[str] = set()
        """Counters that an earlier job waits for."""
        for turn, (request, _) in sorted(ready, key=lambda pair: pair[0]):
            names = set() if request.extra is None else set(request.extra.names_of_run)
            if turn in behind:
                assert not names & awaited, f"{turn} was sent ahead, and an earlier job waits for its counters"
            if turn in launched:
                continue
            if request.extra is not None and (names & awaited or not self._has_counters(request.extra)):
                awaited |= names
            elif walls[turn[1]] is None and why_never(request, nodes) is None:
                waiting.append(turn)
        assert not waiting or not behind or min(waiting) > max(behind), f"{min(waiting)} was overtaken by {behind}"

    def _free_counters(self) -> dict[str, int]:
        """The free amounts of the counters of the run. The attempts of a lane have the same grant, one after
        another."""
        free = dict(self.counters)
        for grant in set(self.held.values()):
            for name, number in grant.extra.of_run if grant.extra is not None else ():
                free[name] -= number
        return free

    def _has_counters(self, extra: ExtraResources) -> bool:
        free = self._free_counters()
        return all(number <= free[name] for name, number in extra.of_run)

    def _transition(self, change: Transition) -> int:
        """Check one transition; returns 1 when it makes a job final."""
        job = self.jobs[change.job.name]
        position, state, attempt = change.position, change.state, change.attempt
        whole = position < 0
        before = job.state if whole else job.states[position]
        assert not before.is_final, f"{change.job.name} ({position}) was {before.name} and is {state.name}"
        if state is State.EXECUTING and not (whole and job.iterated):
            assert before is State.SCHEDULED
        if whole:
            job.state = state
        if not (whole and job.iterated):
            job.states[position] = state
            if state in (State.EXECUTING, State.SUCCEED):
                job.begun.add(position)
        if attempt is not None:
            if state is State.SCHEDULED:
                assert attempt.id not in self.ids, f"{attempt.id} was there before"
                self.ids.add(attempt.id)
            elif state.is_final:
                del self.held[attempt.id]
                self.over[attempt.job.seq, attempt.position] += 1
        if state is State.SCHEDULED:
            assert attempt is not None
            self.held[attempt.id] = attempt.grant
        if whole and job.iterated and state.is_final:
            self._check_final_state(job)
        return whole and state.is_final

    def _check_final_state(self, job: CheckedJob) -> None:
        states = set(job.states.values())
        assert all(state.is_final for state in states)
        worst = [state for state in (State.FAILED, State.CANCELED, State.OMITTED, State.SUCCEED) if state in states]
        assert job.state is worst[0]

    def _launch(self, attempt: Attempt) -> None:
        job = self.jobs[attempt.job.name]
        assert job.states[attempt.position] is State.SCHEDULED
        assert not job.on_hold[attempt.position]
        self._check_exclusive(attempt)
        check_within(attempt.grant, job.demand(attempt.position)[0], self.specs)

    def _check_exclusive(self, attempt: Attempt) -> None:
        if attempt.grant.extra is not None:
            assert min(self._free_counters().values()) >= 0, f"{attempt.id} got counters that are in use"
            self._check_shares(attempt.grant, attempt.id)
        lane = {other.id for other in attempt.lane.attempts} if attempt.lane is not None else {attempt.id}
        for part in attempt.grant.parts:
            others = [
                other
                for attempt_id, grant in self.held.items()
                if attempt_id not in lane
                for other in grant.parts
                if other.node == part.node
            ]
            for other in others:
                assert not set(part.cores) & set(other.cores), f"{attempt.id} got cores that are in use"
                both = attempt.grant.extra is not None and attempt.grant.extra.gpu_share
                assert both or not set(part.gpus) & set(other.gpus), f"{attempt.id} got GPUs that are in use"
            if part.memory:
                # Attempts of one lane have the same part, one after another.
                assert part.memory + sum(other.memory for other in set(others)) <= self.specs[part.node].memory

    def _check_shares(self, grant: Grant, attempt_id: str) -> None:
        """Check that no more than exists of GPUs and counters is granted on the nodes."""
        for part in grant.parts:
            spec = self.specs[part.node]
            gpus = dict.fromkeys(spec.gpus, WHOLE_GPU)
            free = dict(spec.counters)
            for other in set(self.held.values()):
                extra = other.extra or ExtraResources()
                for taken in other.parts:
                    if taken.node == part.node:
                        for gpu in taken.gpus:
                            gpus[gpu] -= extra.gpu_share or WHOLE_GPU
                        for name, number in extra.on_node:
                            free[name] -= number
            assert all(left >= 0 for left in [*gpus.values(), *free.values()]), f"{attempt_id} got more than exists"


def check_within(grant: Grant, request: ResourceRequest, specs: dict[str, NodeSpec]) -> None:
    """Check that a grant is within the request."""
    parts = grant.parts
    assert parts
    assert len({part.node for part in parts}) == len(parts)
    assert grant.extra == request.extra
    share = request.extra is not None and request.extra.gpu_share
    for part in parts:
        spec = specs[part.node]
        assert part.cores
        assert len(set(part.cores)) == len(part.cores)
        assert set(part.cores) <= set(spec.cores)
        assert len(set(part.gpus)) == len(part.gpus) == (1 if share else request.gpus)
        assert set(part.gpus) <= set(spec.gpus)
        assert part.memory == request.memory
        if request.cores is None:
            assert part.cores == spec.cores
    if request.nodes is not None:
        assert _is_within(len(parts), request.nodes)
        if request.cores is not None:
            assert len({len(part.cores) for part in parts}) == 1
            assert _is_within(len(parts[0].cores), request.cores)
    else:
        assert request.cores is not None
        assert _is_within(grant.ncores, request.cores)
        assert len(parts) == 1 or not request.one_node


def _is_within(number: int, amount: Amount) -> bool:
    return amount.least <= number and (amount.most is None or number <= amount.most)
