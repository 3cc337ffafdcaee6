"""The scheduler makes the same decisions as a slow reference implementation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qcg.pilotjob.core import forecast
from qcg.pilotjob.core.effects import Launch
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import Hold, Release, Schedule, Submit
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, Grant
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.changes import JobChange
from qcg.pilotjob.description.iteration import Indices
from qcg.pilotjob.description.iteration_schedulers import MaximumIters
from tests.core.core_driver import CoreDriver, machine, request
from tests.core.reference import Reference, Unit, choose, maximum_iters
from tests.core.strategies import (
    COUNTERS,
    Draft,
    changes,
    describe,
    drafts,
    drafts_for_hosts,
    mixed_node_lists,
    node_lists,
)
from tests.support.tiers import per_tier

Step = tuple[str, object]
FAILURES = ["exit 1", "exit 1", "exit 5", "signal -9", "timeout -15", "memory -9", "unstartable -1", "lost -1"]
ENDS = st.sampled_from(["", "", "", *FAILURES, "staging 1"])
"""Cause and exit code of a failure; empty for success."""
LIMITS = st.sampled_from([0, 1, 1, 2])
"""Failures after which a node is drained."""


def steps_with(described: st.SearchStrategy[Draft]) -> st.SearchStrategy[list[Step]]:
    """Random events, with submissions of such jobs."""
    step: st.SearchStrategy[Step] = st.one_of(
        st.tuples(st.just("submit"), st.lists(described, min_size=1, max_size=4)),
        st.tuples(st.just("end"), st.tuples(st.integers(0, 50), ENDS)),
        st.tuples(st.just("end"), st.tuples(st.integers(0, 50), ENDS)),
        st.tuples(st.just("start"), st.integers(0, 50)),
        st.tuples(st.just("wait"), st.sampled_from([3.0, 60.0])),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("rerun"), st.lists(st.integers(0, 50), max_size=2)),
        st.tuples(st.sampled_from(["drain", "resume", "resume"]), st.integers(0, 50)),
        st.tuples(st.just("schedule"), st.booleans()),
        st.tuples(st.just("set"), st.tuples(st.integers(0, 50), changes())),
        st.tuples(st.just("hold"), st.tuples(st.integers(0, 50), st.none() | st.integers(0, 6), st.booleans())),
        st.tuples(st.just("deadline"), st.sampled_from([0.0, 3.5, 20.5, 100.5, 10000.5])),
    )
    return st.lists(step, min_size=3, max_size=25)


class Both:
    """The core and the reference, driven by the same events."""

    def __init__(self, nodes: list[NodeSpec], drain_after: int) -> None:
        self.driver = CoreDriver(nodes, counters=COUNTERS, drain_after=drain_after)
        self.reference = Reference(nodes, COUNTERS, forecast.ENOUGH_ENDED, drain_after)
        self.nodes = nodes
        self.indices: dict[str, Indices | None] = {}
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
        except SubmissionRejected:  # a share or a counter that exceeds the existing resources
            return
        self.indices = known
        self.reference.submit(descriptions)

    def schedule(self, *, start: bool = True) -> None:
        self.driver.handle(Schedule())
        launched = [unit_of(effect.attempt) for effect in self.driver.effects if isinstance(effect, Launch)]
        assert launched == self.reference.schedule(self.deadline - self.driver.now, self.driver.now)
        self.decisions += len(launched)
        for name, unit, _ in launched if start else []:
            self.reference.start(name, unit, self.driver.now)
            self.driver.start(text_of(name, unit))

    def end(self, which: int, failure: str) -> None:
        attempts = list(self.driver.core.state.attempts.values())
        if attempts:
            attempt = attempts[which % len(attempts)]
            name, unit, _ = unit_of(attempt)
            cause, _, code = failure.partition(" ")
            reason = "exit" if cause in ("", "signal") else cause
            self.note_duration(attempt, int(code or 0))
            self.driver.end(text_of(name, unit), exit_code=int(code or 0), reason=reason)
            if failure:
                self.reference.fail(name, unit, cause, int(code), attempt.id, self.driver.now)
            else:
                self.reference.succeed(name, unit)

    def drain(self, which: int) -> None:
        name = self.nodes[which % len(self.nodes)].name
        self.driver.drain(name)
        self.reference.drain(name)

    def resume(self, which: int) -> None:
        name = self.nodes[which % len(self.nodes)].name
        self.driver.resume(name)
        self.reference.resume(name)

    def start(self, which: int) -> None:
        attempts = [attempt for attempt in self.driver.core.state.attempts.values() if not attempt.started]
        if attempts:
            name, unit, _ = unit_of(attempts[which % len(attempts)])
            self.reference.start(name, unit, self.driver.now)
            self.driver.start(text_of(name, unit))

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
                self.note_duration(self.driver.attempt(text_of(name, unit)), -15)
                self.driver.end(text_of(name, unit), exit_code=-15, reason="cancel")
                self.reference.end(name, unit, "CANCELED")

    def rerun(self, picks: list[int]) -> None:
        """Run some jobs again, or everything that has failed."""
        names = [list(self.indices)[which % len(self.indices)] for which in picks if self.indices]
        self.driver.rerun(*names, states=() if names else [State.FAILED])
        if names:
            wanted = {(name, unit) for name in names for unit in self.reference.find(name).units}
        else:
            jobs = self.reference.jobs
            wanted = {(job.name, unit) for job in jobs for unit in job.units if job.states[unit] == "FAILED"}
        self.reference.rerun(wanted)

    def note_duration(self, attempt: Attempt, exit_code: int) -> None:
        """Let the reference learn the duration of an attempt that is about to end."""
        name, unit, _ = unit_of(attempt)
        if attempt.started:
            self.reference.took(name, unit, self.driver.now - attempt.started, exit_code == 0)

    def hold(self, which: int, index: int | None, held: bool) -> None:
        """Hold or release a job or an iteration; the core refuses what is not possible."""
        if self.indices:
            name = list(self.indices)[which % len(self.indices)]
            name = name if index is None else f"{name}:{index}"
            self.driver.handle(Hold([name]) if held else Release([name]))
            if "errors" not in self.driver.reply:
                self.reference.hold(name, held=held)

    def set(self, which: int, change: JobChange) -> None:
        if self.indices:
            name = list(self.indices)[which % len(self.indices)]
            self.driver.set(name, change=change)
            if "errors" not in self.driver.reply:
                self.reference.set(name, change)

    def release_all(self) -> None:
        self.driver.handle(Release(None))
        for name in self.indices:
            self.reference.hold(name, held=False)

    def agree(self) -> None:
        ours = {}
        for job in self.driver.core.state.jobs.values():
            names = self.driver.iteration_states(job.name) if job.iterations is not None else [job.state.name]
            ours[job.name] = (job.state.name if job.state.is_final else "unfinished", names)
        assert ours == self.reference.states()
        assert set(self.driver.core.state.health.drained) == self.reference.drained()


def text_of(name: str, unit: Unit) -> str:
    return name if unit is None else f"{name}:{unit}"


def unit_of(attempt: Attempt) -> tuple[str, Unit, Grant]:
    iterations = attempt.job.iterations
    return attempt.job.name, None if iterations is None else iterations.indices[attempt.position], attempt.grant


@pytest.fixture(autouse=True)
def learn_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random workloads are short: few attempts end in them."""
    monkeypatch.setattr(forecast, "ENOUGH_ENDED", 2)


@pytest.mark.sampled
@settings(max_examples=per_tier(60, 1500))
@given(node_lists(), steps_with(drafts()), LIMITS)
def test_random_workloads_get_the_same_decisions(nodes: list[NodeSpec], steps: list[Step], limit: int) -> None:
    compare_decisions(nodes, steps, limit)


@pytest.mark.sampled
@settings(max_examples=per_tier(60, 1500))
@given(mixed_node_lists(), steps_with(drafts_for_hosts()), LIMITS)
def test_random_workloads_with_remote_hosts_get_the_same_decisions(
    nodes: list[NodeSpec], steps: list[Step], limit: int
) -> None:
    compare_decisions(nodes, steps, limit)


def compare_decisions(nodes: list[NodeSpec], steps: list[Step], limit: int) -> None:
    both = Both(nodes, limit)
    for action, argument in steps:
        match action, argument:
            case "submit", list(wanted):
                both.submit(wanted)
            case "end", (int(which), str(failure)):
                both.end(which, failure)
            case "start", int(which):
                both.start(which)
            case "wait", float(seconds):
                both.driver.now += seconds
            case "deadline", float(left):
                both.deadline = both.driver.now + left
                both.driver.deadline(both.deadline)
            case "hold", (int(which), int() | None as index, bool(held)):
                both.hold(which, index, held)
            case "set", (int(which), JobChange() as change):
                both.set(which, change)
            case "cancel", int(which):
                both.cancel(which)
            case "rerun", list(picks):
                both.rerun(picks)
            case "drain", int(which):
                both.drain(which)
            case "resume", int(which):
                both.resume(which)
            case _:
                both.schedule(start=bool(argument))
        both.agree()
    both.deadline = math.inf
    both.driver.deadline(None)
    both.release_all()
    for _ in range(1000):
        both.schedule()
        both.agree()
        if both.driver.core.state.attempts:
            both.end(both.decisions, "")
        elif both.driver.core.state.paused or both.driver.core.state.health.avoiding:
            both.driver.now += 60.0
        elif both.reference.drained():
            for number in range(len(nodes)):
                both.resume(number)
        else:
            break
    assert not both.driver.core.state.unfinished


@pytest.mark.sampled
@settings(max_examples=per_tier(40, 1000))
@given(
    node_lists(),
    st.lists(drafts(), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 50), changes()), min_size=1, max_size=6),
)
def test_random_changes_of_waiting_jobs_lead_to_the_same_decisions(
    nodes: list[NodeSpec], wanted: list[Draft], changed: list[tuple[int, JobChange]]
) -> None:
    steps: list[Step] = [("submit", wanted), *(("set", change) for change in changed)]
    compare_decisions(nodes, steps, 0)


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
