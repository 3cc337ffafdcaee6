"""Checks the guarantees of the core from its effects alone."""

from __future__ import annotations

from collections.abc import Iterator

from qcg.pilotjob.core.effects import (
    Added,
    AllDone,
    Effect,
    IterationsFinal,
    Launch,
    QueuedIterationsFinal,
    Removed,
    Requeued,
    Transition,
)
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, Grant
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import Amount, JobDescription, ResourceRequest
from tests.core.reference import requests_of

Unit = tuple[int, int]
"""(number of the job, position); position -1 for a job without iterations."""
Demand = tuple[ResourceRequest, float | None]
"""A resource request with its wall time."""


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
        self.after: list[tuple[CheckedJob, str]] = []
        """Prerequisites: the job, and an index, `${it}` for the same index, or empty for the whole job."""

    def compute_requests(self, specs: list[NodeSpec]) -> None:
        first = 0 if self.iterated else -1
        self.requests = dict(enumerate(requests_of(self.description, specs), first))

    def is_ready(self, position: int) -> bool:
        """Whether all prerequisites of the iteration have succeeded."""
        for other, index in self.after:
            if index == "${it}":
                state = other.states[other.indices.index(self.indices[position])]
            else:
                state = other.states[other.indices.index(int(index))] if index else other.state
            if state is not State.SUCCEED:
                return False
        return True


class EffectChecker:
    def __init__(self, specs: list[NodeSpec]) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.jobs: dict[str, CheckedJob] = {}
        self.held: dict[str, Grant] = {}
        self.ids: set[str] = set()
        """Ids of all attempts so far."""
        self.submitting: dict[str, JobDescription] = {}
        """Descriptions of the next submission by name."""

    def check(self, effects: list[Effect], *, scheduling: bool = False) -> None:
        """Check the effects of one event."""
        ready = self._ready() if scheduling else []
        launched: set[Unit] = set()
        behind: set[Unit] = set()
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
                    launched.add((attempt.job.seq, attempt.position))
                    if attempt.lane is not None:
                        behind.add((attempt.job.seq, attempt.position))
                case Requeued(attempt):
                    del self.held[attempt.id]
                case Removed(job):
                    ended += not self.jobs.pop(job.name).state.is_final
                case AllDone():
                    assert not any(self.unfinished())
        done = sum(isinstance(effect, AllDone) for effect in effects)
        assert done == (ended > 0 and not any(self.unfinished()))
        self._check_arrival_order(ready, launched)
        self._check_prefill_order(ready, launched, behind)

    def nodes_changed(self, specs: list[NodeSpec]) -> None:
        """Note that the run continues on other nodes."""
        self.specs = {spec.name: spec for spec in specs}
        for job in self.jobs.values():
            job.compute_requests(specs)

    def unfinished(self) -> Iterator[str]:
        return (name for name, job in self.jobs.items() if not job.state.is_final)

    def _added(self, names: list[tuple[str, int]]) -> None:
        for name, seq in names:
            assert name not in self.jobs
            self.jobs[name] = CheckedJob(seq, self.submitting[name], list(self.specs.values()))
        for name, _ in names:
            job = self.jobs[name]
            for entry in job.description.after:
                other, _, index = entry.partition(":")
                job.after.append((self.jobs[other], index))

    def _ready(self) -> list[tuple[Unit, Demand]]:
        return [
            ((job.seq, position), (job.requests[position], job.description.wall_time))
            for job in self.jobs.values()
            for position, state in job.states.items()
            if state is State.QUEUED and job.is_ready(position)
        ]

    def _check_arrival_order(self, ready: list[tuple[Unit, Demand]], launched: set[Unit]) -> None:
        for unit, demand in ready:
            if unit not in launched:
                overtaken = [
                    other for other, wanted in ready if other in launched and other > unit and wanted == demand
                ]
                assert not overtaken, f"{overtaken} arrived after {unit} with the same request and were started before"

    def _check_prefill_order(self, ready: list[tuple[Unit, Demand]], launched: set[Unit], behind: set[Unit]) -> None:
        """Check that prefilled jobs were first in the queue, except jobs without enough time left."""
        walls = {job.seq: job.description.wall_time for job in self.jobs.values()}
        waiting = [unit for unit, _ in ready if unit not in launched and walls[unit[0]] is None]
        assert not waiting or not behind or min(waiting) > max(behind), f"{min(waiting)} was overtaken by {behind}"

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
        if attempt is not None:
            if state is State.SCHEDULED:
                assert attempt.id not in self.ids, f"{attempt.id} was there before"
                self.ids.add(attempt.id)
            elif state.is_final:
                del self.held[attempt.id]
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
        self._check_exclusive(attempt)
        check_within(attempt.grant, job.requests[attempt.position], self.specs)

    def _check_exclusive(self, attempt: Attempt) -> None:
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
                assert not set(part.gpus) & set(other.gpus), f"{attempt.id} got GPUs that are in use"
            if part.memory:
                assert part.memory + sum(other.memory for other in others) <= self.specs[part.node].memory


def check_within(grant: Grant, request: ResourceRequest, specs: dict[str, NodeSpec]) -> None:
    """Check that a grant is within the request."""
    parts = grant.parts
    assert parts
    assert len({part.node for part in parts}) == len(parts)
    for part in parts:
        spec = specs[part.node]
        assert part.cores
        assert len(set(part.cores)) == len(part.cores)
        assert set(part.cores) <= set(spec.cores)
        assert len(set(part.gpus)) == len(part.gpus) == request.gpus
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
