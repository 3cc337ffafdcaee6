"""Allocation, release and claims of resources."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core.pool import Pool
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import ResourceRequest
from tests.core.core_driver import machine, node, request


def pool_of(specs: list[NodeSpec]) -> Pool:
    pool = Pool(specs)
    for spec in specs:
        pool.set_available(spec.name, True)
    return pool


def given(pool: Pool, *requests: ResourceRequest) -> list[str | None]:
    return [None if grant is None else str(grant) for grant in map(pool.allocate, requests)]


CASES = {
    "cores come from the first node that holds all of them": (
        machine(2, 4),
        [request(3), request(2)],
        ["n2[0:1:2]", "n1[0:1]"],
    ),
    "cores that no node holds alone are taken node by node": (machine(2, 2), [request(3)], ["n1[0:1],n2[0]"]),
    "what does not fit takes nothing": (machine(2, 2), [request(5), request(4)], [None, "n1[0:1],n2[0:1]"]),
    "the lowest free cores come first": (machine(3), [request(1), request(1), request(1)], ["n1[0]", "n1[1]", "n1[2]"]),
    "a range takes as much as is free": (machine(2, 3), [request((1, 10))], ["n1[0:1],n2[0:1:2]"]),
    "a range stops at its end": (machine(2, 3), [request((1, 3))], ["n2[0:1:2]"]),
    "a range takes no less than its start": (machine(2, 3), [request(4), request((2, 3))], ["n1[0:1],n2[0:1]", None]),
    "a range without end takes everything": (machine(2, 3), [request((2, None))], ["n1[0:1],n2[0:1:2]"]),
    "whole nodes are nodes where nothing runs": (
        machine(2, 2, 2),
        [request(1), request(nodes=2), request(nodes=1)],
        ["n1[0]", "n2[0:1],n3[0:1]", None],
    ),
    "a range of whole nodes takes all idle ones": (
        machine(2, 1, 2),
        [request(1), request(nodes=(1, None))],
        ["n1[0]", "n2[0],n3[0:1]"],
    ),
    "a range of whole nodes stops at its end": (machine(1, 1, 1), [request(nodes=(1, 2))], ["n1[0],n2[0]"]),
    "cores on each node": (
        machine(2, 1, 4),
        [request(2, nodes=2), request(1, nodes=2), request(1, nodes=1)],
        ["n1[0:1],n3[0:1]", "n2[0],n3[2]", "n3[3]"],
    ),
    "cores on more nodes than have them are not given": (machine(2, 1), [request(2, nodes=2)], [None]),
    "a range of nodes with so many cores on each": (machine(2, 1, 4), [request(2, nodes=(1, 9))], ["n1[0:1],n3[0:1]"]),
    "a range of cores on each node is the same on all of them": (
        machine(4, 3, 8),
        [request((2, 6), nodes=3)],
        ["n1[0:1:2],n2[0:1:2],n3[0:1:2]"],
    ),
    "a range of cores goes to the nodes that have most": (
        machine(1, 3, 2),
        [request((1, None), nodes=2)],
        ["n2[0:1],n3[0:1]"],
    ),
    "of a range of nodes with a range of cores, nodes come first": (
        machine(8, 1, 1),
        [request((1, 8), nodes=(1, 3))],
        ["n1[0],n2[0],n3[0]"],
    ),
    "one node alone": (machine(2, 2, 3), [request(3, one=True), request(3, one=True)], ["n3[0:1:2]", None]),
    "a range on one node takes the first node that has all": (
        machine(1, 3, 4),
        [request((1, 3), one=True)],
        ["n2[0:1:2]"],
    ),
    "a range on one node takes the node that has most": (machine(1, 3, 2), [request((1, 9), one=True)], ["n2[0:1:2]"]),
    "a range without end on one node takes all of the largest": (
        machine(1, 3, 3),
        [request((1, None), one=True)],
        ["n2[0:1:2]"],
    ),
    "a node without cores is not a whole node": (machine(0, 1), [request(nodes=1), request(nodes=1)], ["n2[0]", None]),
}


@pytest.mark.parametrize(("nodes", "requests", "expected"), CASES.values(), ids=CASES.keys())
def test_a_request_gets_the_grant(
    nodes: list[NodeSpec], requests: list[ResourceRequest], expected: list[str | None]
) -> None:
    assert given(pool_of(nodes), *requests) == expected


def test_gpus_are_exclusive_and_are_returned_in_order() -> None:
    pool = pool_of([node("n1", 8, gpus=3)])
    first = pool.allocate(request(1, gpus=2))
    second = pool.allocate(request(1, gpus=1))
    assert first is not None
    assert second is not None
    assert (first.parts[0].gpus, second.parts[0].gpus) == (("0", "1"), ("2",))
    assert pool.allocate(request(1, gpus=1)) is None
    pool.release(second)
    pool.release(first)
    everything = pool.allocate(request(1, gpus=3))
    assert everything is not None
    assert everything.parts[0].gpus == ("0", "1", "2")


def test_gpus_are_counted_on_each_node() -> None:
    pool = pool_of([node("n1", 4, gpus=1), node("n2", 4), node("n3", 4, gpus=2)])
    grant = pool.allocate(request(2, nodes=2, gpus=1))
    assert grant is not None
    assert grant.parts == (NodePart("n1", (0, 1), ("0",)), NodePart("n3", (0, 1), ("0",)))


def test_whole_nodes_with_gpus_are_nodes_that_have_them() -> None:
    pool = pool_of([node("n1", 2), node("n2", 2, gpus=1)])
    assert given(pool, request(nodes=1, gpus=1)) == ["n2[0:1]"]


def test_memory_is_taken_on_each_node_and_returned() -> None:
    pool = pool_of([node("n1", 4, memory=100), node("n2", 4, memory=50)])
    both = pool.allocate(request(1, nodes=2, memory=50))
    assert both is not None
    assert given(pool, request(1, memory=60), request(1, memory=50)) == [None, "n1[1]"]
    pool.release(both)
    assert given(pool, request(1, memory=50), request(1, memory=50)) == ["n1[0]", "n2[0]"]


def test_a_request_for_gpus_and_memory_takes_both_or_nothing() -> None:
    pool = pool_of([node("n1", 8, gpus=4, memory=256)])
    large = pool.allocate(request(6, gpus=4, memory=236))
    assert large is not None
    assert given(pool, request(2, gpus=1, memory=20), request(2, memory=21)) == [None, None]
    assert given(pool, request(2, memory=20), request(1)) == ["n1[6:7]", None]
    pool.release(large)
    assert given(pool, request(6, gpus=4, memory=237), request(6, gpus=4, memory=236)) == [None, "n1[0:1:2:3:4:5]"]


def test_released_resources_are_allocated_again() -> None:
    pool = pool_of(machine(2, 2))
    grant = pool.allocate(request(3))
    assert grant is not None
    pool.release(grant)
    assert pool.free_cores == 4
    assert given(pool, request(nodes=2)) == ["n1[0:1],n2[0:1]"]


def test_nothing_is_allocated_on_an_unavailable_node() -> None:
    pool = pool_of(machine(2, 2))
    pool.set_available("n1", False)
    assert pool.free_cores == 2
    assert given(pool, request(3), request(nodes=2), request(2)) == [None, None, "n2[0:1]"]


def test_resources_in_use_stay_in_use_when_their_node_comes_back() -> None:
    pool = pool_of(machine(2))
    grant = pool.allocate(request(1))
    assert grant is not None
    pool.set_available("n1", False)
    pool.set_available("n1", True)
    assert given(pool, request(nodes=1), request(1), request(1)) == [None, "n1[1]", None]
    pool.set_available("n1", False)
    pool.release(grant)
    assert pool.free_cores == 0
    pool.set_available("n1", True)
    assert pool.free_cores == 1


def test_an_unlimited_request_costs_no_more_on_many_nodes() -> None:
    """Masks are kept for sizes that a node can have, not for every number of cores that happens to be free."""
    pool = pool_of(machine(*[4] * 50))
    for _ in range(100):
        assert pool.allocate(request(1)) is not None
        grant = pool.allocate(request((1, None)))
        assert grant is not None
        pool.release(grant)
    assert len(pool.local.with_free) <= 4


def test_a_claim_holds_the_reported_resources() -> None:
    pool = pool_of([node("n1", 4, gpus=2, memory=100)])
    claimed = Grant((NodePart("n1", (1, 2), ("1",), 60),))
    assert pool.claim(claimed) == claimed
    grant = pool.allocate(request(2, gpus=1))
    assert grant is not None
    assert grant.parts == (NodePart("n1", (0, 3), ("0",)),)
    assert given(pool, request(1, memory=60)) == [None]
    pool.release(claimed)
    assert given(pool, request(1, memory=60)) == ["n1[1]"]


def test_a_resource_claimed_twice_is_free_when_both_claims_are_released() -> None:
    """One host may report an attempt before another reports the end of the earlier attempt on the same core."""
    pool = pool_of([node("n1", 2, gpus=1)])
    grant = Grant((NodePart("n1", (0,), ("0",)),))
    pool.claim(grant)
    pool.claim(grant)
    pool.release(grant)
    assert given(pool, request(1, gpus=1), request(2)) == [None, None]
    pool.release(grant)
    assert given(pool, request(2, gpus=1)) == ["n1[0:1]"]


def test_a_claim_on_an_unknown_node_is_not_counted() -> None:
    pool = pool_of(machine(2))
    elsewhere = NodePart("elsewhere", (0,))
    held = pool.claim(Grant((elsewhere, NodePart("n1", (0, 7), ("3",)))))
    assert held == Grant((elsewhere, NodePart("n1", (0,))))
    pool.release(held)
    assert given(pool, request(nodes=1)) == ["n1[0:1]"]


def test_overdrawn_memory_does_not_block_requests_without_memory() -> None:
    pool = pool_of([node("n1", 4, memory=100)])
    pool.claim(Grant((NodePart("n1", (0,), (), 150),)))
    assert given(pool, request(1, memory=1), request(1, one=True)) == [None, "n1[1]"]
