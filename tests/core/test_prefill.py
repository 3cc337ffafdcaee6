"""Prefill of lanes, and retracting prefilled attempts."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.effects import Launch, Retract
from qcg.pilotjob.core.events import AttemptEnded, AttemptStarted, Deadline, HostReported, Schedule
from qcg.pilotjob.core.prefill import HORIZON, MAX_LANE_DEPTH, RETRACT_AFTER, SHORT_ATTEMPT
from qcg.pilotjob.core.queue import entry_of
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.changes import JobChange
from qcg.pilotjob.host.records import Ended, NodeGrant, Running, Started
from tests.core.core_driver import CoreDriver, job, machine, reported_grant, request
from tests.core.restart import resume, save_state
from tests.core.strategies import Draft
from tests.core.test_state_machine import MAX_SINGLE_TRANSITIONS, CoreMachine
from tests.support.tiers import per_tier


class ShortJobs(CoreDriver):
    """A driver whose jobs take half a millisecond by default."""

    def over(self, *names: str, seconds: float = 0.0005, reason: str = "exit") -> list[str]:
        lines = []
        for name in names:
            attempt = self.attempt(name)
            ended = Ended(attempt.id, self.now, 0, reason, "", 7, self.now - seconds)
            lines += self.handle(AttemptEnded(ended))
        return lines

    def sent(self) -> list[str]:
        """Run a scheduling pass; returns the starts, and the prefilled attempts with their lanes."""
        self.schedule()
        attempts = [effect.attempt for effect in self.effects if isinstance(effect, Launch)]
        return [
            f"{_name(attempt)} behind {_name(_before(attempt))}" if _waits(attempt) else _name(attempt)
            for attempt in attempts
        ]

    def retracted(self) -> list[str]:
        """The attempts retracted in a scheduling pass."""
        self.handle(Schedule())
        return [_name(attempt) for effect in self.effects if isinstance(effect, Retract) for attempt in effect.attempts]


def _name(attempt: Attempt) -> str:
    return name_of(attempt.job, attempt.position)


def _waits(attempt: Attempt) -> bool:
    return attempt.lane is not None and attempt.lane.first is not attempt


def _before(attempt: Attempt) -> Attempt:
    assert attempt.lane is not None
    attempts = list(attempt.lane.attempts)
    return attempts[attempts.index(attempt) - 1]


def short_jobs(*cores: int) -> ShortJobs:
    """A driver that has seen one short job end."""
    driver = ShortJobs(machine(*cores))
    driver.submit(job("it", its=2 * MAX_LANE_DEPTH))
    driver.schedule()
    driver.over("it:0")
    return driver


def test_nothing_is_prefilled_before_durations_are_known() -> None:
    driver = ShortJobs(machine(2))
    driver.submit(job("it", its=10))
    assert driver.sent() == ["it:0", "it:1"]


def test_short_jobs_are_prefilled_into_one_lane() -> None:
    driver = short_jobs(1)
    sent = driver.sent()
    assert sent[:4] == ["it:1", "it:2 behind it:1", "it:3 behind it:2", "it:4 behind it:3"]
    assert len(sent) == 1 + MAX_LANE_DEPTH
    assert driver.attempt("it:1").grant == driver.attempt("it:9").grant
    assert driver.over("it:1") == ["it:1 EXECUTING", "it:1 SUCCEED"]
    assert driver.sent() == [f"it:{MAX_LANE_DEPTH + 2} behind it:{MAX_LANE_DEPTH + 1}"]


def test_attempts_prefilled_on_a_drained_node_are_retracted() -> None:
    driver = short_jobs(1)
    driver.sent()
    driver.drain("n1")
    retracted = [
        _name(attempt) for effect in driver.effects if isinstance(effect, Retract) for attempt in effect.attempts
    ]
    assert retracted[:2] == ["it:2", "it:3"]
    assert len(retracted) == MAX_LANE_DEPTH
    driver.over("it:1")
    assert driver.sent() == []


def test_lanes_are_shallower_for_longer_jobs() -> None:
    driver = ShortJobs(machine(1))
    driver.submit(job("it", its=100))
    driver.schedule()
    driver.over("it:0", seconds=HORIZON / 4)
    assert len(driver.sent()) == 1 + 4


def test_nothing_is_prefilled_until_all_recent_attempts_were_short() -> None:
    driver = ShortJobs(machine(1))
    driver.submit(job("it", its=100))
    driver.schedule()
    driver.over("it:0", seconds=2 * SHORT_ATTEMPT)
    for position in range(1, 8):
        assert driver.sent() == [f"it:{position}"]
        driver.over(f"it:{position}")
    assert driver.sent() == ["it:8", "it:9 behind it:8", "it:10 behind it:9"]


def test_free_cores_are_used_before_lanes() -> None:
    driver = ShortJobs(machine(2))
    driver.submit(job("it", its=4))
    driver.schedule()
    driver.over("it:0", "it:1")
    assert driver.sent() == ["it:2", "it:3"]
    driver.over("it:2")
    driver.submit(job("other"))
    assert driver.sent() == ["other"]


def test_lanes_fill_evenly() -> None:
    driver = ShortJobs(machine(2))
    driver.submit(job("it", its=7))
    driver.schedule()
    driver.over("it:0", "it:1")
    assert driver.sent() == ["it:2", "it:3", "it:4 behind it:2", "it:5 behind it:3", "it:6 behind it:4"]


def test_prefill_overtakes_no_earlier_job() -> None:
    driver = ShortJobs(machine(2))
    driver.submit(job("a"), job("b"), job("wide", 2), job("c"), job("d"))
    driver.schedule()
    driver.over("a")
    assert driver.sent() == ["c"]


def test_only_requests_of_a_fixed_size_on_one_node_are_prefilled() -> None:
    for wanted in (request((1, 2)), request(2), request(nodes=1)):
        driver = ShortJobs(machine(1, 1))
        driver.submit(*[job(f"j{number}", 1) for number in range(2)])
        driver.schedule()
        description = job("it", its=9)
        driver.over("j0", "j1")
        driver.submit(
            description.__class__(description.name, description.execution, wanted, None, None, description.iteration)
        )
        driver.schedule()
        running = next(iter(driver.core.state.attempts.values()))
        driver.over(_name(running))
        assert all(attempt.lane is None for attempt in driver.core.state.attempts.values())


def test_requests_for_a_range_of_nodes_are_not_prefilled() -> None:
    driver = ShortJobs(machine(1, 1))
    driver.submit(job("long", 1), job("it", 1, (1, 2), its=9))
    driver.schedule()
    driver.over("it:0")
    assert driver.sent() == ["it:1"]
    driver.over("long")
    driver.over("it:1")
    assert driver.sent() == ["it:2"]
    assert len(driver.attempt("it:2").grant.parts) == 2


def test_jobs_with_different_wall_times_share_a_lane() -> None:
    driver = ShortJobs(machine(1))
    driver.submit(*[job(f"j{number}", 1, wt=60.0 + number) for number in range(4)])
    driver.schedule()
    driver.over("j0")
    assert driver.sent() == ["j1", "j2 behind j1", "j3 behind j2"]


def test_cores_of_a_lane_are_free_when_its_last_attempt_is_over() -> None:
    driver = ShortJobs(machine(1))
    driver.submit(job("it", its=3))
    driver.schedule()
    driver.over("it:0")
    assert driver.sent() == ["it:1", "it:2 behind it:1"]
    driver.over("it:1")
    assert driver.core.state.pool.free_cores == 0
    driver.over("it:2")
    assert driver.core.state.pool.free_cores == 1
    assert not driver.core.state.lanes


def test_canceling_a_prefilled_attempt_leaves_the_others_in_their_lane() -> None:
    driver = short_jobs(1)
    driver.sent()
    driver.cancel("it:2")
    driver.end("it:2", reason="cancel")
    assert driver.core.state.pool.free_cores == 0
    assert _before(driver.attempt("it:3")) is driver.attempt("it:1")
    driver.over("it:1")
    driver.over("it:3")
    assert driver.core.state.pool.free_cores == 0


def test_attempts_behind_a_long_one_are_retracted_and_keep_their_order() -> None:
    driver = ShortJobs(machine(1, 1))
    driver.submit(job("it", its=5))
    driver.schedule()
    driver.over("it:0", "it:1")
    assert driver.sent() == ["it:2", "it:3", "it:4 behind it:2"]
    assert driver.core.handle(Schedule(), driver.now + 0.9 * RETRACT_AFTER) == []
    driver.now += RETRACT_AFTER
    assert driver.retracted() == ["it:4"]
    assert driver.retracted() == []
    driver.over("it:3")
    assert driver.end("it:4", reason="closed", exit_code=-1) == ["requeued it:4", "it:4 QUEUED"]
    assert driver.schedule() == ["it:4 (attempt 2) on n2[0]"]


def test_prefilled_attempts_are_retracted_when_time_is_over() -> None:
    driver = short_jobs(1)
    driver.sent()
    driver.handle(Deadline(driver.now))
    assert "it:2" in driver.retracted()


def test_attempts_behind_a_long_one_are_retracted_while_a_job_must_not_be_overtaken() -> None:
    driver = short_jobs(2)
    driver.sent()
    driver.submit(job("wide", cores=2))
    driver.now += driver.core.state.patience + 1
    assert "it:4" in driver.retracted()


def test_an_attempt_that_has_started_when_it_is_retracted_continues() -> None:
    driver = short_jobs(1)
    driver.sent()
    driver.now += 2 * RETRACT_AFTER
    assert "it:2" in driver.retracted()
    driver.over("it:1")
    assert driver.over("it:2")[-1] == "it:2 SUCCEED"


def test_a_retract_is_repeated_when_an_agent_comes_back() -> None:
    driver = short_jobs(1)
    driver.sent()
    driver.now += 2 * RETRACT_AFTER
    assert "it:2" in driver.retracted()
    live = [
        Running(attempt.id, 0, 0.0, reported_grant(attempt.grant)) for attempt in driver.core.state.attempts.values()
    ]
    driver.handle(HostReported(["n1"], live))
    assert "it:2" in driver.retracted()


def test_attempts_prefilled_by_an_earlier_manager_are_retracted() -> None:
    driver = short_jobs(1)
    driver.sent()
    attempts = driver.core.state.attempts.values()
    live = [
        Running(attempt.id, *((7, 1.0) if _name(attempt) == "it:1" else (0, 0.0)), reported_grant(attempt.grant))
        for attempt in attempts
    ]
    after, _ = resume(save_state(driver.core.state), machine(1), driver.now, rerun_lost=False)
    effects = after.handle(HostReported(["n1"], live), driver.now)
    (retracted,) = (effect.attempts for effect in effects if isinstance(effect, Retract))
    assert sorted(map(_name, retracted)) == sorted(_name(attempt) for attempt in attempts if _name(attempt) != "it:1")
    driver.core = after
    never_started = Ended(driver.attempt("it:2").id, driver.now, -1, "closed", "", 0, 0.0)
    assert "it:2 QUEUED" in driver.handle(AttemptEnded(never_started))


def test_prefilled_attempts_unknown_to_the_journal_are_retracted() -> None:
    driver = ShortJobs(machine(1))
    driver.submit(job("it", its=3))
    grant: list[NodeGrant] = [("n1", (0,), ())]
    driver.handle(HostReported(["n1"], [Running("1:0.1", 7, 1.0, grant), Running("1:1.1", 0, 0.0, grant)]))
    assert [
        _name(attempt) for effect in driver.effects if isinstance(effect, Retract) for attempt in effect.attempts
    ] == ["it:1"]


def test_prefilled_attempts_that_never_arrived_are_queued_again() -> None:
    driver = short_jobs(1)
    driver.sent()
    first = driver.attempt("it:1")
    lines = driver.handle(HostReported(["n1"], [Running(first.id, 7, driver.now, reported_grant(first.grant))]))
    assert lines.count("it:2 QUEUED") == 1
    assert driver.core.state.pool.free_cores == 0
    assert not driver.core.state.lanes


def test_a_lane_is_taken_back_when_its_attempts_turn_out_to_be_long() -> None:
    driver = short_jobs(1)
    assert len(driver.sent()) == MAX_LANE_DEPTH + 1
    driver.now += 0.4
    driver.over("it:1", seconds=0.4)
    retracted = driver.retracted()
    assert retracted[0] == "it:3"
    assert len(retracted) == MAX_LANE_DEPTH - 1


def warm(*cores: int) -> ShortJobs:
    """A driver without jobs that waits for short jobs with one core."""
    driver = ShortJobs(machine(*cores))
    driver.submit(job("warm"))
    driver.schedule()
    driver.over("warm")
    return driver


def test_a_held_job_is_taken_back_from_its_lane() -> None:
    driver = warm(1)
    driver.submit(job("a", its=3), job("b"))
    assert driver.sent() == ["a:0", "a:1 behind a:0", "a:2 behind a:1", "b behind a:2"]
    driver.start("a:0")
    assert driver.hold("a")[0] == "held a"
    assert [_name(one) for effect in driver.effects if isinstance(effect, Retract) for one in effect.attempts] == [
        "a:1",
        "a:2",
        "b",
    ]
    driver.end("a:1", "a:2", "b", exit_code=-1, reason="closed")
    driver.over("a:0")
    assert driver.schedule() == ["b (attempt 2) on n1[0]"]
    driver.release("a")
    driver.over("b")
    assert driver.sent() == ["a:1", "a:2 behind a:1"]


@pytest.mark.parametrize("its", [None, 2])
def test_a_job_that_was_sent_ahead_as_a_whole_can_be_held_and_changed(its: int | None) -> None:
    driver = warm(1)
    driver.submit(job("blk"), job("a", its=its))
    assert driver.sent()[1] == ("a behind blk" if its is None else "a:0 behind blk")
    driver.start("blk")
    assert driver.set("a", change=JobChange(wall_time=20.0))[-1] == "reply {'changed': 1}"
    assert driver.hold("a")[-1] == "reply {'held': 1}"
    names = ["a"] if its is None else ["a:0", "a:1"]
    driver.end(*names, exit_code=-1, reason="closed")
    driver.over("blk")
    assert driver.schedule() == []
    driver.release("a")
    assert driver.schedule()[0] == f"{names[0]} (attempt 2) on n1[0]"
    assert entry_of(driver.core.state.jobs["a"], -1 if its is None else 0).wall_time == 20.0


def test_finish_takes_prefilled_attempts_back_before_it_kills_the_attempt_in_front_of_them() -> None:
    driver = short_jobs(1)
    assert driver.sent()[:2] == ["it:1", "it:2 behind it:1"]
    driver.start("it:1")
    *stops, last = driver.finish()
    assert stops
    assert all(line.startswith("stop it:") for line in stops)
    assert last == "kill it:1"


def test_nothing_is_prefilled_behind_an_attempt_on_contested_cores() -> None:
    driver = short_jobs(1)
    driver.sent()
    last = 2 * MAX_LANE_DEPTH - 1
    driver.handle(AttemptStarted(Started(f"1:{last}.1", 7, driver.now, reported_grant(driver.attempt("it:1").grant))))
    driver.over("it:1")
    assert driver.sent() == []
    driver.over(f"it:{last}")
    driver.over("it:2")
    assert driver.sent()


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "last first"])
def test_attempts_of_a_lane_may_be_lost_in_any_order(order: int) -> None:
    driver = short_jobs(1)
    driver.sent()
    for attempt in list(driver.core.state.attempts.values())[::order]:
        driver.handle(AttemptEnded(Ended(attempt.id, driver.now, -1, "lost", "", 0, 0.0)))
    assert driver.core.state.pool.free_cores == 1


class BusyCoreMachine(CoreMachine):
    """Small jobs that end at once, so that most are prefilled."""

    @initialize(cores=st.lists(st.integers(1, 3), min_size=1, max_size=2), rerun_lost=st.booleans())
    def begin(self, cores: list[int], rerun_lost: bool) -> None:
        nodes = [NodeSpec(f"n{number}", tuple(range(count))) for number, count in enumerate(cores)]
        wanted = [Draft(request(1), None, range(30), None, [])] * 2
        super().begin(
            nodes=nodes,
            rerun_lost=rerun_lost,
            wanted=wanted,
            tick=0.001,
            few=MAX_SINGLE_TRANSITIONS,
            drain_after=1,
        )
        self.work(3)

    @rule(rounds=st.integers(1, 3))
    def work(self, rounds: int) -> None:
        for _ in range(rounds):
            for host in self.hosts.values():
                for attempt_id in host.startable() if host.connected else ():
                    self.start(host, attempt_id)
                for attempt_id in list(host.live) if host.connected else ():
                    self.end(host, attempt_id, 0, "exit")
            self.handle(Schedule())

    @rule(count=st.integers(5, 40), more=st.booleans())
    def submit_small(self, count: int, more: bool) -> None:
        drafts = [Draft(request(1), None, range(count), None, [])]
        if more:
            drafts.append(Draft(request(2), None, None, None, [("whole", 1, "after")]))
        self.submit_some(drafts)


TestBusyMachine = pytest.mark.sampled(BusyCoreMachine.TestCase)
TestBusyMachine.settings = settings(max_examples=per_tier(10, 80), stateful_step_count=20)
