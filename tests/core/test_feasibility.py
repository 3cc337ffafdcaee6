"""Impossible resource requests and their messages."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core.feasibility import least_cores, why_never
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import ResourceRequest
from tests.core.core_driver import machine, node, request

GPUS = [node("n1", 4, gpus=2, memory=100), node("n2", 8)]
CLAIMED = [NodeSpec("n1", (3,), claimed=3)]
"""A host of 4 cores on which other runs have claimed 3."""

NEVER: list[tuple[list[NodeSpec], ResourceRequest, str]] = [
    (machine(2, 3), request(6), "6 cores requested, but only 5 exist"),
    (machine(2, 3), request((6, None)), "6 cores requested, but only 5 exist"),
    (machine(2, 3), request(4, one=True), "4 cores on one node requested, but only 3 exist"),
    (machine(2, 3), request(nodes=3), "3 nodes requested, but only 2 exist"),
    (
        machine(2, 3),
        request(3, nodes=2),
        "2 nodes with 3 cores each requested, but only 1 exists: there are 1 node with 3 cores, 1 node with 2 cores",
    ),
    (machine(2, 3), request(1, gpus=1), "1 GPU on a node requested, but no node has that"),
    (GPUS, request(1, gpus=3), "3 GPUs on a node requested, but no node has that"),
    (GPUS, request(1, memory=101), "101 MiB of memory on a node requested, but no node has more than 100 MiB"),
    (GPUS, request(1, gpus=3, memory=5), "3 GPUs and 5 MiB of memory on a node requested, but no node has that"),
    (GPUS, request(5, gpus=1), "5 cores on one node requested, but only 4 exist"),
    (GPUS, request(nodes=2, gpus=1), "2 nodes and 1 GPU requested, but only 1 exists"),
    (
        GPUS,
        request(2, nodes=2, memory=9),
        "2 nodes with 2 cores each and 9 MiB of memory requested, but only 1 exists",
    ),
    (
        machine(1, 1),
        request(4, nodes=2),
        "2 nodes with 4 cores each requested, but none exists: there are 2 nodes with 1 core each",
    ),
    (machine(1), request(2, nodes=1), "1 node with 2 cores requested, but none exists: there is 1 node with 1 core"),
    (machine(0, 1), request(nodes=2), "2 nodes requested, but only 1 exists"),
    (
        CLAIMED,
        request(2),
        "2 cores requested, but only 1 exists; other runs of this user have claimed 3 cores: with --share-cores or"
        " --no-bind a run uses all cores",
    ),
    (
        CLAIMED,
        request(4, nodes=1),
        "1 node with 4 cores requested, but none exists: there is 1 node with 1 core; other runs of this user have"
        " claimed 3 cores: with --share-cores or --no-bind a run uses all cores",
    ),
    (CLAIMED, request(5), "5 cores requested, but only 1 exists"),
    (CLAIMED, request(1, gpus=1), "1 GPU on a node requested, but no node has that"),
    ([], request(1), "1 core requested, but none exists"),
    ([], request(1, one=True), "1 core on one node requested, but none exists"),
]


@pytest.mark.parametrize(("nodes", "wanted", "sentence"), NEVER, ids=[sentence for *_, sentence in NEVER])
def test_an_impossible_request_gets_the_message(nodes: list[NodeSpec], wanted: ResourceRequest, sentence: str) -> None:
    assert why_never(wanted, nodes) == sentence


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        (machine(2, 3), request(5)),
        (machine(2, 3), request((1, 100))),
        (machine(2, 3), request(3, one=True)),
        (machine(2, 3), request(nodes=2)),
        (machine(2, 3), request((1, 3), nodes=(2, 9))),
        (GPUS, request(4, gpus=2, memory=100)),
        (GPUS, request(nodes=(1, 2), gpus=1)),
    ],
    ids=str,
)
def test_a_possible_request_gets_no_message(nodes: list[NodeSpec], wanted: ResourceRequest) -> None:
    assert why_never(wanted, nodes) is None


@pytest.mark.parametrize(
    ("wanted", "cores"),
    [
        (request(3), 3),
        (request((2, None)), 2),
        (request(nodes=2), 2),
        (request(3, nodes=2), 6),
        (request((3, 4), nodes=(2, 5)), 6),
    ],
    ids=str,
)
def test_least_cores_is_the_size_of_the_smallest_grant(wanted: ResourceRequest, cores: int) -> None:
    assert least_cores(wanted) == cores
