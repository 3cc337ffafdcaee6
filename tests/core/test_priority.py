"""Jobs of higher priority start first, and the cost follows the distinct requests."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcg.pilotjob.core import priority_order
from qcg.pilotjob.core.arrival_order import ArrivalOrder
from qcg.pilotjob.core.events import Schedule
from qcg.pilotjob.core.node_group import NodeGroup
from qcg.pilotjob.core.priority_order import PriorityOrder, rank_of
from qcg.pilotjob.core.queue import Durations, QueueEntry, QueueLine, make_entry
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.why import WaitExplainer
from qcg.pilotjob.description.model import ResourceRequest, RetryPolicy
from tests.core.core_driver import CoreDriver, job, machine
from tests.core.restart import resume, save_state

LINE = QueueLine((ResourceRequest(), 0.0, ""), 1, NodeGroup("", ()), None, Durations())


def entry(seq: int, priority: int) -> QueueEntry:
    return make_entry(Job(seq, f"job{seq}", b"", 0.0), LINE, rank=rank_of(priority))


def names(launches: list[str]) -> list[str]:
    return [text.split(" ")[0] for text in launches]


@given(
    st.permutations(range(1, 20)),
    st.lists(st.integers(-3, 3), min_size=19, max_size=19),
    st.lists(st.booleans(), max_size=60),
    st.sampled_from([1, 2, 64]),
)
def test_first_is_the_earliest_of_the_highest_priority(
    coming: list[int], priorities: list[int], adds: list[bool], most: int
):
    before, priority_order.MAX_RANKS = priority_order.MAX_RANKS, most
    try:
        order, expected = PriorityOrder(ArrivalOrder()), list[tuple[int, int]]()
        for adds_one in adds:
            if adds_one and coming:
                seq = coming.pop()
                order.add(entry(seq, priorities[seq - 1]))
                heapq.heappush(expected, (-priorities[seq - 1], seq))
            elif expected:
                first = order.first()
                assert first is not None
                assert (first.rank // priority_order.RANK_STEP, first.job.seq) == heapq.heappop(expected)
                order.take_first()
            assert len(order) == len(list(order)) == len(expected)
            assert bool(order) == bool(expected)
            for rank, seq in expected:
                assert order.before(rank * priority_order.RANK_STEP + seq) == sorted(expected).index((rank, seq))
        order.keep(lambda one: one.job.seq % 2 == 0)
        left = []
        while found := order.first():
            left.append(found.job.seq)
            order.take_first()
        assert left == [seq for _, seq in sorted(expected) if seq % 2 == 0]
    finally:
        priority_order.MAX_RANKS = before


def test_higher_priorities_start_first_and_equal_ones_in_their_order():
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b", priority=1), job("c", priority=-1), job("d", priority=1), job("e"))
    order = []
    for _ in range(5):
        order += names(driver.schedule())
        driver.end(order[-1])
    assert order == ["b", "d", "a", "e", "c"]


def test_priorities_order_jobs_of_different_requests():
    driver = CoreDriver(machine(4))
    driver.submit(job("small", 1), job("wide", 4, priority=7))
    assert names(driver.schedule()) == ["wide"]


def test_a_job_that_fits_overtakes_one_of_higher_priority_that_does_not():
    driver = CoreDriver(machine(4))
    driver.submit(job("first", 2))
    driver.schedule()
    driver.submit(job("wide", 4, priority=7), job("small", 1))
    assert names(driver.schedule()) == ["small"]


def test_patience_with_a_wide_job_holds_up_no_job_of_higher_priority():
    driver = CoreDriver(machine(2))
    driver.core.state.patience = 10.0
    driver.submit(job("first", 1))
    driver.schedule()
    driver.submit(job("wide", 2), job("later", 1), job("urgent", 1, priority=1))
    driver.now += 100.0
    assert names(driver.schedule()) == ["urgent"]
    driver.end("urgent")
    assert driver.schedule() == []


def test_a_retried_job_keeps_its_priority():
    driver = CoreDriver(machine(1))
    driver.submit(job("a", retry=RetryPolicy({"exit": 1}), priority=3), job("b", priority=2))
    driver.schedule()
    driver.end("a", exit_code=1)
    assert names(driver.schedule()) == ["a"]


def test_a_resumed_run_keeps_priorities():
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b", its=2, priority=2))
    core, _ = resume(save_state(driver.core.state), machine(1), driver.now, rerun_lost=False)
    driver.core = core
    driver.report("n1")
    assert names(driver.schedule()) == ["b:0"]


def test_why_counts_the_jobs_of_higher_priority():
    driver = CoreDriver(machine(1))
    driver.submit(job("running"))
    driver.schedule()
    driver.submit(job("a"), job("b"), job("c", priority=2), job("d", priority=1))
    assert why(driver, "b").endswith("; 3 jobs ahead of it, 2 of higher priority")
    assert why(driver, "a").endswith("; 2 jobs ahead of it, all of higher priority")
    assert why(driver, "d").endswith("; 1 job ahead of it, all of higher priority")
    assert why(driver, "c").endswith("0 of 1 are free")


def why(driver: CoreDriver, name: str) -> str:
    found = driver.core.state.jobs[name]
    return WaitExplainer(driver.core.state, driver.now).why_waiting(found, -1, job(name)).sentence


@pytest.mark.parametrize("priorities", [1, 10, 1000])
def test_a_pass_looks_at_one_job_of_each_request_whatever_the_priorities(
    priorities: int, monkeypatch: pytest.MonkeyPatch
):
    driver = CoreDriver(machine(1))
    driver.submit(*[job(f"j{number}", priority=number % priorities) for number in range(1000)])
    driver.submit(*[job(f"k{number}", wt=9.0, priority=number % priorities) for number in range(1000)])
    driver.schedule()
    seen: list[QueueEntry] = []
    look = QueueEntry.first_ready

    def noted(entry: QueueEntry) -> int | None:
        seen.append(entry)
        return look(entry)

    monkeypatch.setattr(QueueEntry, "first_ready", noted)
    driver.end("j999" if priorities == 1000 else "j0" if priorities == 1 else "j9")
    del seen[:]
    driver.core.handle(Schedule(), 1.0)
    assert len(set(seen)) <= 3
