"""Cost of an iteration in large jobs: it must not grow with their size. All times are CPU times, with a wide margin."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.effects import Effect, Launch, Reply
from qcg.pilotjob.core.events import (
    AttemptEnded,
    AttemptStarted,
    Cancel,
    Event,
    Hold,
    HostReported,
    Release,
    Rerun,
    RerunCandidate,
    Schedule,
    Submit,
)
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.host.records import Ended, Started
from tests.core.core_driver import job, machine, reported_grant

MANY = 20_000
BOUND = 3.0
"""Seconds of CPU for so many iterations: several times what they need, and less than half of what they needed when the
cost of each grew with their number."""


def submitted(*jobs: JobDescription) -> Core:
    core = Core(machine(250))
    core.handle(HostReported(["n1"], []), 0.0)
    core.handle(Submit(list(jobs)), 0.0)
    return core


def handled_in_time(core: Core, *events: Event) -> list[Effect]:
    """The effects of the last event."""
    before = time.process_time()
    effects: list[Effect] = []
    for event in events:
        effects = core.handle(event, 1.0)
    assert time.process_time() - before < BOUND
    return effects


def reply(effects: Sequence[Effect]) -> dict[str, object]:
    (found,) = [effect.data for effect in effects if isinstance(effect, Reply)]
    return found


def run_all(core: Core) -> int:
    """Run all waiting jobs; returns the number of attempts."""
    attempts = 0
    while launched := [effect.attempt for effect in core.handle(Schedule(), 1.0) if isinstance(effect, Launch)]:
        for attempt in launched:
            core.handle(AttemptStarted(Started(attempt.id, 1, 1.0, reported_grant(attempt.grant))), 1.0)
            core.handle(AttemptEnded(Ended(attempt.id, 1.0, 0, "exit", "", 1, 1.0)), 1.0)
        attempts += len(launched)
    return attempts


def test_holding_each_iteration_again_costs_the_same_for_each():
    core = submitted(job("a", its=MANY))
    iterations = [f"a:{index}" for index in range(MANY)]
    effects = handled_in_time(core, Hold(iterations), Release(iterations), Hold(iterations))
    assert reply(effects) == {"held": MANY}
    assert not [effect for effect in core.handle(Schedule(), 1.0) if isinstance(effect, Launch)]


def test_running_iterations_again_by_name_costs_the_same_for_each():
    core = submitted(job("a", its=MANY))
    core.handle(Cancel(["a"]), 1.0)
    spec = core.state.jobs["a"].spec
    assert spec is not None
    candidate = RerunCandidate(msgspec.msgpack.decode(spec, type=JobDescription))
    effects = handled_in_time(core, Rerun([f"a:{index}" for index in range(MANY)], [], {"a": candidate}))
    assert reply(effects) == {"rerun": MANY, "jobs": ["a"]}


def test_a_start_costs_the_same_however_many_jobs_wait_for_the_end_of_all_iterations():
    waiting = [job(f"w{number}", outcomes="afterany=a") for number in range(MANY)]
    core = submitted(job("a", its=MANY), *waiting)
    before = time.process_time()
    assert run_all(core) == 2 * MANY
    assert time.process_time() - before < BOUND
