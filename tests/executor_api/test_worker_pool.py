"""Assignment of calls to workers, starts and dismissals, without processes."""

from __future__ import annotations

import itertools
from concurrent.futures import Future

from qcg.pilotjob.executor_api.calls import Call, Resources
from qcg.pilotjob.executor_api.worker_pool import AHEAD, CLAIM_AFTER, SHORT, Leave, Send, Start, WorkerPool

ONE, TWO = Resources(1), Resources(2)
IDLE = 60.0


class Office:
    """A pool, with a clock that the test sets."""

    def __init__(self, cores: int = 4, max_workers: int | None = None) -> None:
        self.pool = WorkerPool(cores, max_workers, IDLE)
        self.now = 100.0
        self._numbers = itertools.count()

    def add(self, resources: Resources = ONE, function: bytes = b"f") -> Call:
        call = Call(next(self._numbers), resources, function, b"", Future(), self.now)
        self.pool.add(call)
        return call

    def plan(self) -> list[tuple[str, str]]:
        """The actions of the pool, with the ids of workers; for calls, with their numbers too."""
        actions = []
        for action in self.pool.plan(self.now):
            if isinstance(action, Send):
                actions.append((f"call {action.call.number}", action.worker.id))
            else:
                actions.append(("start" if isinstance(action, Start) else "leave", action.worker.id))
            assert isinstance(action, (Send, Start, Leave))
        return actions

    def join(self, *workers: str) -> None:
        for worker in workers:
            assert self.pool.joined(worker, self.now)

    def answer(self, worker: str, call: Call, seconds: float = 1.0) -> None:
        assert self.pool.answered(worker, call.number, seconds, self.now) is call


def test_there_are_as_many_workers_as_calls_but_no_more_than_cores():
    office = Office(cores=3)
    office.add()
    assert office.plan() == [("start", "w1")]
    for _ in range(9):
        office.add()
    assert office.plan() == [("start", "w2"), ("start", "w3")]
    assert office.plan() == []


def test_no_more_workers_than_the_limit_are_started():
    office = Office(cores=4, max_workers=2)
    for _ in range(4):
        office.add()
    assert office.plan() == [("start", "w1"), ("start", "w2")]


def test_calls_go_out_in_order_one_to_each_worker():
    office = Office(cores=2)
    calls = [office.add() for _ in range(3)]
    office.plan()
    office.join("w1", "w2")
    assert office.plan() == [("call 0", "w1"), ("call 1", "w2")]
    office.answer("w2", calls[1])
    assert office.plan() == [("call 2", "w2")]
    assert not office.pool.is_idle


def test_short_calls_are_prefilled_evenly():
    office = Office(cores=2)
    calls = [office.add() for _ in range(20)]
    office.plan()
    office.join("w1", "w2")
    office.plan()
    office.answer("w1", calls[0], seconds=SHORT / 5)
    sent = office.plan()
    assert sent[:3] == [("call 2", "w1"), ("call 3", "w1"), ("call 4", "w2")]
    assert len(sent) == 2 * AHEAD - 1


def test_a_function_that_took_long_is_not_prefilled():
    office = Office(cores=1)
    calls = [office.add() for _ in range(20)]
    office.plan()
    office.join("w1")
    office.plan()
    office.answer("w1", calls[0], seconds=10.0)
    assert office.plan() == [("call 1", "w1")]


def test_an_unknown_function_waits_behind_no_other():
    office = Office(cores=1)
    first = office.add()
    office.add(function=b"f")
    office.add(function=b"g")
    office.plan()
    office.join("w1")
    office.plan()
    office.answer("w1", first, seconds=SHORT / 5)
    assert office.plan() == [("call 1", "w1")]


def test_idle_workers_are_dismissed_at_once_for_calls_of_another_kind():
    office = Office(cores=2)
    calls = [office.add(), office.add()]
    office.plan()
    office.join("w1", "w2")
    office.plan()
    office.answer("w1", calls[0])
    office.add(TWO)
    assert office.plan() == [("leave", "w1")]
    assert office.plan() == []
    office.answer("w2", calls[1])
    assert office.plan() == [("leave", "w2")]
    assert office.pool.lost("w1") == []
    assert office.plan() == []
    assert office.pool.lost("w2") == []
    assert office.plan() == [("start", "w3")]


def test_busy_workers_are_dismissed_for_a_kind_without_workers_after_a_while():
    office = Office(cores=2)
    for _ in range(2):
        office.add()
    office.plan()
    office.join("w1", "w2")
    office.plan()
    office.add(TWO)
    later = [office.add() for _ in range(2)]
    assert office.plan() == []
    assert office.pool.next_plan_time(office.now) == office.now + CLAIM_AFTER
    office.now += CLAIM_AFTER
    assert sorted(office.plan()) == [("leave", "w1"), ("leave", "w2")]
    office.pool.lost("w1")
    # The free core is not for calls that came later.
    assert office.plan() == []
    office.pool.lost("w2")
    assert office.plan() == [("start", "w3")]
    assert set(later) < set(office.pool.waiting())


def test_older_calls_of_the_same_kind_keep_their_workers():
    office = Office(cores=1)
    for _ in range(3):
        office.add()
    office.plan()
    office.join("w1")
    office.plan()
    office.add(Resources(1, gpus=1))
    office.now += CLAIM_AFTER
    assert office.plan() == []


def test_workers_are_dismissed_after_their_idle_time():
    office = Office()
    call = office.add()
    office.plan()
    office.join("w1")
    office.plan()
    office.answer("w1", call)
    assert office.pool.is_idle
    assert office.pool.next_plan_time(office.now) == office.now + IDLE
    office.now += IDLE
    assert office.plan() == [("leave", "w1")]


def test_only_the_calls_of_a_lost_worker_are_lost():
    office = Office(cores=2)
    calls = [office.add() for _ in range(3)]
    office.plan()
    office.join("w1", "w2")
    office.plan()
    assert office.pool.lost("w1") == [calls[0]]
    assert office.plan() == [("start", "w3")]
    office.answer("w2", calls[1])
    assert office.plan() == [("call 2", "w2")]


def test_when_no_worker_of_a_kind_can_be_started_its_calls_are_lost():
    office = Office(cores=2)
    wide = office.add(TWO)
    office.plan()
    narrow = office.add(ONE)
    assert office.pool.lost("w1") == [wide]
    assert office.pool.waiting() == [narrow]


def test_a_worker_that_could_not_start_loses_no_call_while_others_run():
    office = Office(cores=2)
    for _ in range(3):
        office.add()
    office.plan()
    office.join("w1")
    office.plan()
    assert office.pool.lost("w2") == []
    assert office.plan() == [("start", "w3")]


def test_cancelled_calls_are_not_sent():
    office = Office(cores=1)
    calls = [office.add() for _ in range(3)]
    office.plan()
    calls[0].future.cancel()
    calls[1].future.cancel()
    assert office.pool.drop(calls[1])
    assert not office.pool.drop(calls[1])
    office.join("w1")
    assert office.plan() == [("call 2", "w1")]


def test_an_unknown_worker_is_rejected():
    assert not Office().pool.joined("w7", 0.0)


def test_calls_that_a_lost_worker_had_not_started_are_assigned_first():
    office = Office(cores=1)
    known = office.add()
    assert office.plan() == [("start", "w1")]
    office.join("w1")
    office.plan()
    office.answer("w1", known, SHORT / 2)
    done, began, *ahead = [office.add() for _ in range(AHEAD)]
    last = office.add()
    assert office.plan() == [(f"call {call.number}", "w1") for call in (done, began, *ahead)]
    assert office.pool.lost("w1", began.number) == [done, began]
    assert office.pool.waiting() == [*ahead, last]
    assert office.plan() == [("start", "w2")]
    office.join("w2")
    assert office.plan() == [(f"call {call.number}", "w2") for call in (*ahead, last)]


def test_without_a_started_call_all_calls_of_a_lost_worker_are_lost():
    """Otherwise workers that die at their start would be started again and again."""
    office = Office(cores=1)
    call = office.add()
    office.plan()
    office.join("w1")
    office.plan()
    assert office.pool.lost("w1", None) == [call]
    assert office.plan() == []


def test_a_worker_lost_between_two_calls_loses_none():
    office = Office(cores=1)
    first, second = office.add(), office.add()
    office.plan()
    office.join("w1")
    office.plan()
    office.answer("w1", first, 1.0)
    assert office.plan() == [(f"call {second.number}", "w1")]
    assert office.pool.lost("w1", first.number) == []
    assert office.pool.waiting() == [second]
