"""Parsers for the output of `scontrol`, on output of real clusters (`shapes/`) and on small texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.cluster.base import Allocation
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.slurm.allocation import allocation_of
from qcg.pilotjob.cluster.slurm.node_lists import expand
from qcg.pilotjob.cluster.slurm.parse import JobRecord, parse_gpus, parse_ids, parse_jobs, parse_shown_nodes
from qcg.pilotjob.core.resources import NodeSpec

SHAPES = Path(__file__).parent / "shapes"


def jobs_of(shape: str) -> list[JobRecord]:
    return parse_jobs((SHAPES / f"{shape}.job").read_text())


def allocation(shape: str, job_id: str) -> Allocation:
    (job,) = [job for job in jobs_of(shape) if job.id == job_id]
    return allocation_of(job, parse_shown_nodes((SHAPES / f"{shape}.nodes").read_text()))


@pytest.mark.parametrize(
    ("shape", "job_id", "nodes"),
    [
        ("whole", "1", [NodeSpec(f"n{i}", (0, 1, 2, 3), ("0",), 4000) for i in (1, 2, 3)]),
        (
            "uneven",
            "2",
            [NodeSpec("n1", (0, 1, 2, 3), (), 400), NodeSpec("n2", (0,), (), 100), NodeSpec("n3", (0,), (), 100)],
        ),
        (
            "partial",
            "4",
            [
                NodeSpec("n1", (3,), ("1",), 100),
                NodeSpec("n2", (0, 1, 2, 3), ("0",), 400),
                NodeSpec("n4", (0, 1, 2), ("0",), 300),
            ],
        ),
        ("array", "7", [NodeSpec("n2", (1,), (), 100)]),
        ("typed", "2", [NodeSpec("n1", (1, 2, 3), ("0", "2"), 100), NodeSpec("n2", (0,), ("0", "1"), 100)]),
        ("threads", "2", [NodeSpec("n1", (2, 3, 4, 5, 6, 7), (), 100), NodeSpec("n2", (0, 1, 2, 3), (), 100)]),
        ("one-thread", "3", [NodeSpec("n1", (2, 4, 6), (), 100), NodeSpec("n2", (0, 2, 4), (), 100)]),
    ],
)
def test_an_allocation_has_the_resources_that_slurm_reports(shape: str, job_id: str, nodes: list[NodeSpec]):
    found = allocation(shape, job_id)
    assert found.ref.id == job_id
    assert found.specs == nodes
    assert found.addresses == {node.name: f"10.77.0.{node.name[1:]}" for node in nodes}


def test_the_end_is_known_where_there_is_a_limit():
    assert allocation("whole", "1").end == 1794784442.0
    assert allocation("typed", "2").end is None


def test_where_slurm_does_not_manage_memory_jobs_have_all_of_the_node():
    shown = (SHAPES / "whole.job").read_text().replace("Mem=4000", "Mem=0")
    nodes = parse_shown_nodes((SHAPES / "whole.nodes").read_text())
    assert [spec.memory for spec in allocation_of(parse_jobs(shown)[0], nodes).specs] == [4000, 4000, 4000]


def test_nodes_that_count_only_cores_give_one_thread_of_each():
    shown = (SHAPES / "threads.nodes").read_text().replace("CPUTot=8", "CPUTot=4")
    found = allocation_of(jobs_of("threads")[0], parse_shown_nodes(shown))
    assert [spec.cores for spec in found.specs] == [(2, 4, 6), (0, 2)]
    assert found.layouts == {"n1": (4, 2), "n2": (4, 2)}


def test_threads_that_jobs_must_not_use_belong_to_the_allocation():
    assert allocation("one-thread", "3").cpus == {"n1": (2, 3, 4, 5, 6, 7), "n2": (0, 1, 2, 3, 4, 5)}


def test_a_heterogeneous_job_is_refused_with_a_sentence():
    first, second = jobs_of("het")
    for job in (first, second):
        with pytest.raises(ClusterError, match=r"job \d is heterogeneous \(jobs 5-6\).*ask for one kind of nodes"):
            allocation_of(job, [])


def test_a_node_that_slurm_does_not_describe_is_named():
    (job,) = jobs_of("partial")
    nodes = parse_shown_nodes((SHAPES / "partial.nodes").read_text())
    with pytest.raises(ClusterError, match="what job 4 has on node n4; see what `scontrol show job -d 4`"):
        allocation_of(job, nodes[:2])


def test_jobs_that_wait_or_have_ended_are_known_by_their_state():
    (waiting,) = jobs_of("waiting")
    assert (waiting.state, waiting.nodes, waiting.shares) == ("PENDING", "", [])
    (ended,) = jobs_of("ended")
    assert ended.state == "COMPLETED"


def test_no_output_is_no_jobs_and_no_nodes():
    assert parse_jobs("") == []
    assert parse_shown_nodes("No nodes in the system\n") == []


@pytest.mark.parametrize(
    ("text", "ids"), [("0", (0,)), ("0-3", (0, 1, 2, 3)), ("0-1,5,8-9", (0, 1, 5, 8, 9)), ("127", (127,))]
)
def test_ids_are_numbers_and_ranges(text: str, ids: tuple[int, ...]):
    assert parse_ids(text) == ids


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "0x1"])
def test_an_invalid_list_of_ids_is_refused(text: str):
    with pytest.raises(ClusterError, match="is not a list of ids"):
        parse_ids(text)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("", ()),
        ("gpu:2(IDX:0-1)", ("0", "1")),
        ("gpu:tesla:3(IDX:0,2-3)", ("0", "2", "3")),
        ("gpu:a100:1(IDX:10),gpu:v100:1(IDX:2)", ("2", "10")),
        ("gpu(IDX:0)", ("0",)),
        ("gpu:0(IDX:N/A)", ()),
        ("gpu:2(CNT:2)", ("0", "1")),
        ("gpu:2", ("0", "1")),
        ("shard:2(IDX:0),craynetwork:1", ()),
        ("shard:2(1/4,1/4),gpu:1(IDX:3)", ("3",)),
        ("gpu_mem:4000(IDX:0)", ()),
    ],
)
def test_gpus_are_known_by_their_ids(text: str, gpus: tuple[str, ...]):
    assert parse_gpus(text) == gpus


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[009-011]", ["n009", "n010", "n011"]),
        ("b2,a[1-2],login", ["b2", "a1", "a2", "login"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("node-[1,3]-ib.example", ["node-1-ib.example", "node-3-ib.example"]),
    ],
)
def test_node_lists_are_expanded_in_their_order(text: str, names: list[str]):
    assert expand(text) == names


@pytest.mark.parametrize("text", ["", "n[1-", "n1,,n2", "n[a-b]"])
def test_an_invalid_node_list_is_refused(text: str):
    with pytest.raises(ClusterError, match="is not a list of nodes"):
        expand(text)
