"""Work that is sent ahead: who stands behind whom, and what becomes of those who do."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.effects import Launch, Retract
from qcg.pilotjob.core.events import AgentReported, AttemptEnded, AttemptStarted, Deadline, Schedule
from qcg.pilotjob.core.prefill import HORIZON, MAX_LANE_DEPTH, RETRACT_AFTER, SHORT_ATTEMPT
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.host.records import Ended, NodeGrant, Running, Started
from tests.core.core_driver import CoreDriver, job, machine, request, told
from tests.core.restart import resume, save_state
from tests.core.strategies import Draft
from tests.core.test_state_machine import MAX_SINGLE_TRANSITIONS, Machine
from tests.support.tiers import per_tier


class ShortJobs(CoreDriver):
    """A desk where jobs take half a millisecond, unless told otherwise."""

    def over(self, *names: str, seconds: float = 0.0005, reason: str = "exit") -> list[str]:
        lines = []
        for name in names:
            attempt = self.attempt(name)
            ended = Ended(attempt.id, self.now, 0, reason, "", 7, self.now - seconds)
            lines += self.tell(AttemptEnded(ended))
        return lines

    def sent(self) -> list[str]:
        """A scheduling pass: who is started, and who is sent ahead and behind whom."""
        self.schedule()
        attempts = [effect.attempt for effect in self.effects if isinstance(effect, Launch)]
        return [
            f"{_name(attempt)} behind {_name(_before(attempt))}" if _waits(attempt) else _name(attempt)
            for attempt in attempts
        ]

    def retracted(self) -> list[str]:
        """In a scheduling pass."""
        self.tell(Schedule())
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
    """After one job has shown how short they are."""
    driver = ShortJobs(machine(*cores))
    driver.submit(job("it", its=2 * MAX_LANE_DEPTH))
    driver.schedule()
    driver.over("it:0")
    return driver


def test_nobody_is_sent_ahead_before_it_is_known_how_long_jobs_take() -> None:
    driver = ShortJobs(machine(2))
    driver.submit(job("it", its=10))
    assert driver.sent() == ["it:0", "it:1"]


def test_short_jobs_stand_behind_one_another_on_the_same_cores() -> None:
    driver = short_jobs(1)
    sent = driver.sent()
    assert sent[:4] == ["it:1", "it:2 behind it:1", "it:3 behind it:2", "it:4 behind it:3"]
    assert len(sent) == 1 + MAX_LANE_DEPTH
    assert driver.attempt("it:1").grant == driver.attempt("it:9").grant
    assert driver.over("it:1") == ["it:1 EXECUTING", "it:1 SUCCEED"]
    assert driver.sent() == [f"it:{MAX_LANE_DEPTH + 2} behind it:{MAX_LANE_DEPTH + 1}"]


def test_the_longer_jobs_take_the_fewer_are_sent_ahead() -> None:
    driver = ShortJobs(machine(1))
    driver.submit(job("it", its=100))
    driver.schedule()
    driver.over("it:0", seconds=HORIZON / 4)
    assert len(driver.sent()) == 1 + 4


def test_nobody_stands_behind_others_until_all_of_late_were_short() -> None:
    driver = ShortJobs(machine(1))
    driver.submit(job("it", its=100))
    driver.schedule()
    driver.over("it:0", seconds=2 * SHORT_ATTEMPT)
    for position in range(1, 8):
        assert driver.sent() == [f"it:{position}"]
        driver.over(f"it:{position}")
    assert driver.sent() == ["it:8", "it:9 behind it:8", "it:10 behind it:9"]


def test_cores_that_are_free_come_first() -> None:
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


def test_who_waits_longer_for_something_else_is_not_overtaken() -> None:
    driver = ShortJobs(machine(2))
    driver.submit(job("a"), job("b"), job("wide", 2), job("c"), job("d"))
    driver.schedule()
    driver.over("a")
    assert driver.sent() == ["c"]


def test_only_what_has_one_size_on_one_node_is_stood_behind() -> None:
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


def test_who_asks_for_a_range_of_nodes_is_not_bound_to_what_the_run_before_got() -> None:
    driver = ShortJobs(machine(1, 1))
    driver.submit(job("long", 1), job("it", 1, (1, 2), its=9))
    driver.schedule()
    driver.over("it:0")
    assert driver.sent() == ["it:1"]
    driver.over("long")
    driver.over("it:1")
    assert driver.sent() == ["it:2"]
    assert len(driver.attempt("it:2").grant.parts) == 2


def test_those_who_ask_for_the_same_stand_behind_each_other_whatever_their_wall_times() -> None:
    driver = ShortJobs(machine(1))
    driver.submit(*[job(f"j{number}", 1, wt=60.0 + number) for number in range(4)])
    driver.schedule()
    driver.over("j0")
    assert driver.sent() == ["j1", "j2 behind j1", "j3 behind j2"]


def test_cores_are_free_when_the_last_of_a_lane_is_over() -> None:
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


def test_one_that_is_cancelled_while_it_waits_leaves_the_others_where_they_are() -> None:
    driver = short_jobs(1)
    driver.sent()
    driver.cancel("it:2")
    driver.end("it:2", reason="cancel")
    assert driver.core.state.pool.free_cores == 0
    assert _before(driver.attempt("it:3")) is driver.attempt("it:1")
    driver.over("it:1")
    driver.over("it:3")
    assert driver.core.state.pool.free_cores == 0


def test_those_behind_a_run_that_takes_long_are_called_back_and_wait_in_their_old_places() -> None:
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


def test_those_behind_others_are_called_back_when_nothing_is_to_be_started_any_more() -> None:
    driver = short_jobs(1)
    driver.sent()
    driver.tell(Deadline(driver.now))
    assert "it:2" in driver.retracted()


def test_those_behind_a_run_that_takes_long_are_called_back_also_while_somebody_must_not_be_overtaken() -> None:
    driver = short_jobs(2)
    driver.sent()
    driver.submit(job("wide", cores=2))
    driver.now += driver.core.state.patience + 1
    assert "it:4" in driver.retracted()


def test_one_that_has_started_when_it_is_called_back_goes_on() -> None:
    driver = short_jobs(1)
    driver.sent()
    driver.now += 2 * RETRACT_AFTER
    assert "it:2" in driver.retracted()
    driver.over("it:1")
    assert driver.over("it:2")[-1] == "it:2 SUCCEED"


def test_an_agent_that_comes_back_is_asked_again() -> None:
    driver = short_jobs(1)
    driver.sent()
    driver.now += 2 * RETRACT_AFTER
    assert "it:2" in driver.retracted()
    live = [Running(attempt.id, 0, 0.0, told(attempt.grant)) for attempt in driver.core.state.attempts.values()]
    driver.tell(AgentReported(["n1"], live))
    assert "it:2" in driver.retracted()


def test_those_whom_an_earlier_manager_has_sent_ahead_are_called_back() -> None:
    driver = short_jobs(1)
    driver.sent()
    attempts = driver.core.state.attempts.values()
    live = [
        Running(attempt.id, *((7, 1.0) if _name(attempt) == "it:1" else (0, 0.0)), told(attempt.grant))
        for attempt in attempts
    ]
    after, _ = resume(save_state(driver.core.state), machine(1), driver.now, rerun_lost=False)
    effects = after.handle(AgentReported(["n1"], live), driver.now)
    (recalled,) = (effect.attempts for effect in effects if isinstance(effect, Retract))
    assert sorted(map(_name, recalled)) == sorted(_name(attempt) for attempt in attempts if _name(attempt) != "it:1")
    driver.core = after
    never_started = Ended(driver.attempt("it:2").id, driver.now, -1, "closed", "", 0, 0.0)
    assert "it:2 QUEUED" in driver.tell(AttemptEnded(never_started))


def test_those_that_no_journal_knows_to_be_sent_ahead_are_called_back() -> None:
    driver = ShortJobs(machine(1))
    driver.submit(job("it", its=3))
    grant: list[NodeGrant] = [("n1", (0,), ())]
    driver.tell(AgentReported(["n1"], [Running("1:0.1", 7, 1.0, grant), Running("1:1.1", 0, 0.0, grant)]))
    assert [
        _name(attempt) for effect in driver.effects if isinstance(effect, Retract) for attempt in effect.attempts
    ] == ["it:1"]


def test_those_that_a_host_never_got_wait_again() -> None:
    driver = short_jobs(1)
    driver.sent()
    first = driver.attempt("it:1")
    lines = driver.tell(AgentReported(["n1"], [Running(first.id, 7, driver.now, told(first.grant))]))
    assert lines.count("it:2 QUEUED") == 1
    assert driver.core.state.pool.free_cores == 0
    assert not driver.core.state.lanes


def test_nobody_more_is_sent_behind_a_run_whose_cores_another_one_turns_out_to_have() -> None:
    driver = short_jobs(1)
    driver.sent()
    last = 2 * MAX_LANE_DEPTH - 1
    driver.tell(AttemptStarted(Started(f"1:{last}.1", 7, driver.now, told(driver.attempt("it:1").grant))))
    driver.over("it:1")
    assert driver.sent() == []
    driver.over(f"it:{last}")
    driver.over("it:2")
    assert driver.sent()


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "last first"])
def test_runs_of_a_lane_end_in_any_order_when_they_are_lost(order: int) -> None:
    driver = short_jobs(1)
    driver.sent()
    for attempt in list(driver.core.state.attempts.values())[::order]:
        driver.tell(AttemptEnded(Ended(attempt.id, driver.now, -1, "lost", "", 0, 0.0)))
    assert driver.core.state.pool.free_cores == 1


class BusyMachine(Machine):
    """Small jobs that are over at once, so that most are sent ahead."""

    @initialize(cores=st.lists(st.integers(1, 3), min_size=1, max_size=2), rerun_lost=st.booleans())
    def begin(self, cores: list[int], rerun_lost: bool) -> None:
        nodes = [NodeSpec(f"n{number}", tuple(range(count))) for number, count in enumerate(cores)]
        wanted = [Draft(request(1), None, range(30), None, [])] * 2
        super().begin(nodes=nodes, rerun_lost=rerun_lost, wanted=wanted, tick=0.001, few=MAX_SINGLE_TRANSITIONS)
        self.work(3)

    @rule(rounds=st.integers(1, 3))
    def work(self, rounds: int) -> None:
        for _ in range(rounds):
            for host in self.hosts.values():
                for attempt_id in host.startable() if host.connected else ():
                    self.start(host, attempt_id)
                for attempt_id in list(host.live) if host.connected else ():
                    self.end(host, attempt_id, 0, "exit")
            self.tell(Schedule())

    @rule(count=st.integers(5, 40), more=st.booleans())
    def submit_small(self, count: int, more: bool) -> None:
        drafts = [Draft(request(1), None, range(count), None, [])]
        if more:
            drafts.append(Draft(request(2), None, None, None, [("whole", 1)]))
        self.submit_some(drafts)


TestBusyMachine = pytest.mark.sampled(BusyMachine.TestCase)
TestBusyMachine.settings = settings(max_examples=per_tier(10, 80), stateful_step_count=20)
