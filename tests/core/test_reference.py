"""The scheduler makes the same decisions as a slow reference implementation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qcg.pilotjob.core.effects import Launch
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import Schedule, Submit
from qcg.pilotjob.core.records import Attempt, Grant
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.iteration_schedulers import MaximumIters
from tests.core.core_driver import CoreDriver, machine, request
from tests.core.reference import Reference, Unit, choose, maximum_iters
from tests.core.strategies import Draft, describe, drafts, node_lists
from tests.support.tiers import per_tier

Step = tuple[str, object]

STEPS = st.one_of(
    st.tuples(st.just("submit"), st.lists(drafts(), min_size=1, max_size=4)),
    st.tuples(st.just("end"), st.tuples(st.integers(0, 50), st.sampled_from([0, 0, 0, 1]))),
    st.tuples(st.just("end"), st.tuples(st.integers(0, 50), st.sampled_from([0, 0, 0, 1]))),
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("schedule"), st.none()),
    st.tuples(st.just("deadline"), st.sampled_from([0.0, 3.5, 20.5, 100.5, 10000.5])),
)


class Both:
    """The core and the reference, driven by the same events."""

    def __init__(self, nodes: list[NodeSpec]) -> None:
        self.driver = CoreDriver(nodes)
        self.reference = Reference(nodes)
        self.indices: dict[str, range | None] = {}
        self.decisions = 0
        self.deadline = math.inf

    def submit(self, wanted: list[Draft]) -> None:
        known = dict(self.indices)
        descriptions = []
        for draft in wanted:
            name = f"j{len(known)}"
            descriptions.append(describe(name, draft, known))
            known[name] = draft.indices
        if len(wanted) % 2:  # dependents come before their prerequisites
            descriptions.reverse()
        try:
            self.driver.handle(Submit(descriptions))
        except SubmissionRejected:  # a share that what exists cannot give
            return
        self.indices = known
        self.reference.submit(descriptions)

    def schedule(self) -> None:
        self.driver.handle(Schedule())
        launched = [unit_of(effect.attempt) for effect in self.driver.effects if isinstance(effect, Launch)]
        assert launched == self.reference.schedule(self.deadline - self.driver.now)
        self.decisions += len(launched)

    def end(self, which: int, exit_code: int) -> None:
        attempts = list(self.driver.core.state.attempts.values())
        if attempts:
            name, unit, _ = unit_of(attempts[which % len(attempts)])
            self.driver.end(name if unit is None else f"{name}:{unit}", exit_code=exit_code)
            self.reference.end(name, unit, "FAILED" if exit_code else "SUCCEED")

    def cancel(self, which: int) -> None:
        """Cancel a job: queued parts at once, running attempts when their hosts report the end."""
        if self.indices:
            name = list(self.indices)[which % len(self.indices)]
            job = self.driver.core.state.jobs[name]
            attempts = [unit_of(attempt) for attempt in self.driver.core.state.attempts.values() if attempt.job is job]
            self.driver.cancel(name)
            if not job.state.is_final or not attempts:
                self.reference.cancel(name)
            for _, unit, _ in attempts:
                self.driver.end(name if unit is None else f"{name}:{unit}", exit_code=-15, reason="cancel")
                self.reference.end(name, unit, "CANCELED")

    def agree(self) -> None:
        ours = {}
        for job in self.driver.core.state.jobs.values():
            names = self.driver.iteration_states(job.name) if job.iterations is not None else [job.state.name]
            ours[job.name] = (job.state.name if job.state.is_final else "unfinished", names)
        assert ours == self.reference.states()


def unit_of(attempt: Attempt) -> tuple[str, Unit, Grant]:
    iterations = attempt.job.iterations
    return attempt.job.name, None if iterations is None else iterations.indices[attempt.position], attempt.grant


@pytest.mark.sampled
@settings(max_examples=per_tier(60, 1500))
@given(node_lists(), st.lists(STEPS, min_size=3, max_size=25))
def test_random_workloads_get_the_same_decisions(nodes: list[NodeSpec], steps: list[Step]) -> None:
    both = Both(nodes)
    for action, argument in steps:
        match action, argument:
            case "submit", list(wanted):
                both.submit(wanted)
            case "end", (int(which), int(exit_code)):
                both.end(which, exit_code)
            case "deadline", float(left):
                both.deadline = both.driver.now + left
                both.driver.deadline(both.deadline)
            case "cancel", int(which):
                both.cancel(which)
            case _:
                both.schedule()
        both.agree()
    both.deadline = math.inf
    both.driver.deadline(None)
    for _ in range(1000):
        both.schedule()
        both.agree()
        if not both.driver.core.state.attempts:
            break
        both.end(both.decisions, 0)
    assert not both.driver.core.state.unfinished


@given(st.integers(1, 40), st.integers(1, 30), st.integers(1, 30))
def test_maximum_iters_matches_the_specification(count: int, total: int, least: int) -> None:
    if least <= total:
        plan = MaximumIters(count, total, least)
        assert [plan.size(position) for position in range(count)] == maximum_iters(count, total, least)


@pytest.mark.parametrize(
    ("count", "total", "least", "sizes"),
    [(3, 10, 1, [3, 3, 4]), (3, 11, 5, [5, 6, 11]), (4, 11, 6, [11, 11, 11, 11]), (5, 4, 2, [2, 2, 2, 2, 4])],
)
def test_the_reference_implementation_matches_the_specification(
    count: int, total: int, least: int, sizes: list[int]
) -> None:
    assert maximum_iters(count, total, least) == sizes


def test_the_reference_implementation_matches_the_documents() -> None:
    chosen = choose(Reference(machine(2, 2)).nodes, request(3))
    assert chosen is not None
    assert [(node.spec.name, count) for node, count in chosen] == [("n1", 2), ("n2", 1)]
