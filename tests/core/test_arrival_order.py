"""Queue lines keep the order of arrival, whenever an entry is added."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from qcg.pilotjob.core.arrival_order import ArrivalOrder
from qcg.pilotjob.core.node_group import NodeGroup
from qcg.pilotjob.core.queue import Durations, QueueEntry, QueueLine
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.model import ResourceRequest

LINE = QueueLine((ResourceRequest(), 0.0, ""), 1, NodeGroup("", ()), None, Durations())


def entry(seq: int) -> QueueEntry:
    return QueueEntry(Job(seq, f"job{seq}", b"", 0.0), LINE)


@given(st.permutations(range(20)), st.lists(st.booleans(), max_size=60))
def test_first_returns_the_entry_that_arrived_first(coming: list[int], adds: list[bool]):
    arrivals, expected = ArrivalOrder(), list[int]()
    for adds_one in adds:
        if adds_one and coming:
            seq = coming.pop()
            arrivals.add(entry(seq))
            heapq.heappush(expected, seq)
        elif expected:
            first = arrivals.first()
            assert first is not None
            assert first.job.seq == heapq.heappop(expected)
            arrivals.take_first()
        assert len(arrivals) == len(expected)
        assert sorted(one.job.seq for one in arrivals) == sorted(expected)


@given(st.permutations(range(20)), st.integers(0, 20))
def test_before_counts_entries_that_arrived_earlier(coming: list[int], dropped: int):
    arrivals = ArrivalOrder()
    for seq in coming:
        arrivals.add(entry(seq))
    for _ in range(dropped):
        arrivals.take_first()
    assert [arrivals.before(seq) for seq in range(21)] == [max(seq - dropped, 0) for seq in range(21)]


@given(st.permutations(range(20)))
def test_keep_preserves_the_order_of_entries(coming: list[int]):
    arrivals = ArrivalOrder()
    for seq in coming:
        arrivals.add(entry(seq))
    arrivals.keep(lambda one: one.job.seq % 2 == 0)
    left = []
    while first := arrivals.first():
        left.append(first.job.seq)
        arrivals.take_first()
    assert left == list(range(0, 20, 2))
