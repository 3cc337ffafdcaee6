"""Work that is sent ahead: who stands behind whom, and what becomes of those who do."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from qcg.pilotjob.core.effects import Launch, Retract
from qcg.pilotjob.core.events import AgentReported, AttemptEnded, AttemptStarted, Deadline, Schedule
from qcg.pilotjob.core.prefill import HORIZON, LATE, MOST_BEHIND, SHORT
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.state import name_of
from qcg.pilotjob.host.records import Ended, NodeGrant, Running, Started
from tests.core.desk import Desk, job, machine, request, told
from tests.core.resuming import books_of, resume
from tests.core.strategies import Draft
from tests.core.test_machine import FEW, Machine


class ShortJobs(Desk):
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
    desk = ShortJobs(machine(*cores))
    desk.submit(job("it", its=2 * MOST_BEHIND))
    desk.schedule()
    desk.over("it:0")
    return desk


def test_nobody_is_sent_ahead_before_it_is_known_how_long_jobs_take() -> None:
    desk = ShortJobs(machine(2))
    desk.submit(job("it", its=10))
    assert desk.sent() == ["it:0", "it:1"]


def test_short_jobs_stand_behind_one_another_on_the_same_cores() -> None:
    desk = short_jobs(1)
    sent = desk.sent()
    assert sent[:4] == ["it:1", "it:2 behind it:1", "it:3 behind it:2", "it:4 behind it:3"]
    assert len(sent) == 1 + MOST_BEHIND
    assert desk.attempt("it:1").grant == desk.attempt("it:9").grant
    assert desk.over("it:1") == ["it:1 EXECUTING", "it:1 SUCCEED"]
    assert desk.sent() == [f"it:{MOST_BEHIND + 2} behind it:{MOST_BEHIND + 1}"]


def test_the_longer_jobs_take_the_fewer_are_sent_ahead() -> None:
    desk = ShortJobs(machine(1))
    desk.submit(job("it", its=100))
    desk.schedule()
    desk.over("it:0", seconds=HORIZON / 4)
    assert len(desk.sent()) == 1 + 4


def test_nobody_stands_behind_others_until_all_of_late_were_short() -> None:
    desk = ShortJobs(machine(1))
    desk.submit(job("it", its=100))
    desk.schedule()
    desk.over("it:0", seconds=2 * SHORT)
    for position in range(1, 8):
        assert desk.sent() == [f"it:{position}"]
        desk.over(f"it:{position}")
    assert desk.sent() == ["it:8", "it:9 behind it:8", "it:10 behind it:9"]


def test_cores_that_are_free_come_first() -> None:
    desk = ShortJobs(machine(2))
    desk.submit(job("it", its=4))
    desk.schedule()
    desk.over("it:0", "it:1")
    assert desk.sent() == ["it:2", "it:3"]
    desk.over("it:2")
    desk.submit(job("other"))
    assert desk.sent() == ["other"]


def test_lanes_fill_evenly() -> None:
    desk = ShortJobs(machine(2))
    desk.submit(job("it", its=7))
    desk.schedule()
    desk.over("it:0", "it:1")
    assert desk.sent() == ["it:2", "it:3", "it:4 behind it:2", "it:5 behind it:3", "it:6 behind it:4"]


def test_who_waits_longer_for_something_else_is_not_overtaken() -> None:
    desk = ShortJobs(machine(2))
    desk.submit(job("a"), job("b"), job("wide", 2), job("c"), job("d"))
    desk.schedule()
    desk.over("a")
    assert desk.sent() == ["c"]


def test_only_what_has_one_size_on_one_node_is_stood_behind() -> None:
    for wanted in (request((1, 2)), request(2), request(nodes=1)):
        desk = ShortJobs(machine(1, 1))
        desk.submit(*[job(f"j{number}", 1) for number in range(2)])
        desk.schedule()
        description = job("it", its=9)
        desk.over("j0", "j1")
        desk.submit(
            description.__class__(description.name, description.execution, wanted, None, None, description.iteration)
        )
        desk.schedule()
        running = next(iter(desk.core.state.attempts.values()))
        desk.over(_name(running))
        assert all(attempt.lane is None for attempt in desk.core.state.attempts.values())


def test_who_asks_for_a_range_of_nodes_is_not_bound_to_what_the_run_before_got() -> None:
    desk = ShortJobs(machine(1, 1))
    desk.submit(job("long", 1), job("it", 1, (1, 2), its=9))
    desk.schedule()
    desk.over("it:0")
    assert desk.sent() == ["it:1"]
    desk.over("long")
    desk.over("it:1")
    assert desk.sent() == ["it:2"]
    assert len(desk.attempt("it:2").grant.parts) == 2


def test_those_who_ask_for_the_same_stand_behind_each_other_whatever_their_wall_times() -> None:
    desk = ShortJobs(machine(1))
    desk.submit(*[job(f"j{number}", 1, wt=60.0 + number) for number in range(4)])
    desk.schedule()
    desk.over("j0")
    assert desk.sent() == ["j1", "j2 behind j1", "j3 behind j2"]


def test_cores_are_free_when_the_last_of_a_lane_is_over() -> None:
    desk = ShortJobs(machine(1))
    desk.submit(job("it", its=3))
    desk.schedule()
    desk.over("it:0")
    assert desk.sent() == ["it:1", "it:2 behind it:1"]
    desk.over("it:1")
    assert desk.core.state.pool.free_cores == 0
    desk.over("it:2")
    assert desk.core.state.pool.free_cores == 1
    assert not desk.core.state.lanes


def test_one_that_is_cancelled_while_it_waits_leaves_the_others_where_they_are() -> None:
    desk = short_jobs(1)
    desk.sent()
    desk.cancel("it:2")
    desk.end("it:2", reason="cancel")
    assert desk.core.state.pool.free_cores == 0
    assert _before(desk.attempt("it:3")) is desk.attempt("it:1")
    desk.over("it:1")
    desk.over("it:3")
    assert desk.core.state.pool.free_cores == 0


def test_those_behind_a_run_that_takes_long_are_called_back_and_wait_in_their_old_places() -> None:
    desk = ShortJobs(machine(1, 1))
    desk.submit(job("it", its=5))
    desk.schedule()
    desk.over("it:0", "it:1")
    assert desk.sent() == ["it:2", "it:3", "it:4 behind it:2"]
    assert desk.core.handle(Schedule(), desk.now + 0.9 * LATE) == []
    desk.now += LATE
    assert desk.retracted() == ["it:4"]
    assert desk.retracted() == []
    desk.over("it:3")
    assert desk.end("it:4", reason="closed", exit_code=-1) == ["requeued it:4", "it:4 QUEUED"]
    assert desk.schedule() == ["it:4 (attempt 2) on n2[0]"]


def test_those_behind_others_are_called_back_when_nothing_is_to_be_started_any_more() -> None:
    desk = short_jobs(1)
    desk.sent()
    desk.tell(Deadline(desk.now))
    assert "it:2" in desk.retracted()


def test_those_behind_a_run_that_takes_long_are_called_back_also_while_somebody_must_not_be_overtaken() -> None:
    desk = short_jobs(2)
    desk.sent()
    desk.submit(job("wide", cores=2))
    desk.now += desk.core.state.patience + 1
    assert "it:4" in desk.retracted()


def test_one_that_has_started_when_it_is_called_back_goes_on() -> None:
    desk = short_jobs(1)
    desk.sent()
    desk.now += 2 * LATE
    assert "it:2" in desk.retracted()
    desk.over("it:1")
    assert desk.over("it:2")[-1] == "it:2 SUCCEED"


def test_an_agent_that_comes_back_is_asked_again() -> None:
    desk = short_jobs(1)
    desk.sent()
    desk.now += 2 * LATE
    assert "it:2" in desk.retracted()
    live = [Running(attempt.id, 0, 0.0, told(attempt.grant)) for attempt in desk.core.state.attempts.values()]
    desk.tell(AgentReported(["n1"], live))
    assert "it:2" in desk.retracted()


def test_those_whom_an_earlier_manager_has_sent_ahead_are_called_back() -> None:
    desk = short_jobs(1)
    desk.sent()
    attempts = desk.core.state.attempts.values()
    live = [
        Running(attempt.id, *((7, 1.0) if _name(attempt) == "it:1" else (0, 0.0)), told(attempt.grant))
        for attempt in attempts
    ]
    after, _ = resume(books_of(desk.core.state), machine(1), desk.now, rerun_lost=False)
    effects = after.handle(AgentReported(["n1"], live), desk.now)
    (recalled,) = (effect.attempts for effect in effects if isinstance(effect, Retract))
    assert sorted(map(_name, recalled)) == sorted(_name(attempt) for attempt in attempts if _name(attempt) != "it:1")
    desk.core = after
    never_started = Ended(desk.attempt("it:2").id, desk.now, -1, "closed", "", 0, 0.0)
    assert "it:2 QUEUED" in desk.tell(AttemptEnded(never_started))


def test_those_that_no_journal_knows_to_be_sent_ahead_are_called_back() -> None:
    desk = ShortJobs(machine(1))
    desk.submit(job("it", its=3))
    grant: list[NodeGrant] = [("n1", (0,), ())]
    desk.tell(AgentReported(["n1"], [Running("1:0.1", 7, 1.0, grant), Running("1:1.1", 0, 0.0, grant)]))
    assert [
        _name(attempt) for effect in desk.effects if isinstance(effect, Retract) for attempt in effect.attempts
    ] == ["it:1"]


def test_those_that_a_host_never_got_wait_again() -> None:
    desk = short_jobs(1)
    desk.sent()
    first = desk.attempt("it:1")
    lines = desk.tell(AgentReported(["n1"], [Running(first.id, 7, desk.now, told(first.grant))]))
    assert lines.count("it:2 QUEUED") == 1
    assert desk.core.state.pool.free_cores == 0
    assert not desk.core.state.lanes


def test_nobody_more_is_sent_behind_a_run_whose_cores_another_one_turns_out_to_have() -> None:
    desk = short_jobs(1)
    desk.sent()
    last = 2 * MOST_BEHIND - 1
    desk.tell(AttemptStarted(Started(f"1:{last}.1", 7, desk.now, told(desk.attempt("it:1").grant))))
    desk.over("it:1")
    assert desk.sent() == []
    desk.over(f"it:{last}")
    desk.over("it:2")
    assert desk.sent()


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "last first"])
def test_runs_of_a_lane_end_in_any_order_when_they_are_lost(order: int) -> None:
    desk = short_jobs(1)
    desk.sent()
    for attempt in list(desk.core.state.attempts.values())[::order]:
        desk.tell(AttemptEnded(Ended(attempt.id, desk.now, -1, "lost", "", 0, 0.0)))
    assert desk.core.state.pool.free_cores == 1


class BusyMachine(Machine):
    """Small jobs that are over at once, so that most are sent ahead."""

    @initialize(cores=st.lists(st.integers(1, 3), min_size=1, max_size=2), rerun_lost=st.booleans())
    def begin(self, cores: list[int], rerun_lost: bool) -> None:
        nodes = [NodeSpec(f"n{number}", tuple(range(count))) for number, count in enumerate(cores)]
        wanted = [Draft(request(1), None, range(30), None, [])] * 2
        super().begin(nodes=nodes, rerun_lost=rerun_lost, wanted=wanted, tick=0.001, few=FEW)
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


TestBusyMachine = BusyMachine.TestCase
TestBusyMachine.settings = settings(max_examples=10, stateful_step_count=20)
