"""`--nodes`, and the resources of this machine without it."""

from __future__ import annotations

import os
import socket

import pytest

from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.local.machine import local_nodes
from qcg.pilotjob.cluster.local.virtual_nodes import parse_nodes
from qcg.pilotjob.description.model import Counters


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("4", [("n0", 4)]),
        ("n1:2", [("n1", 2)]),
        ("4,2,2", [("n0", 4), ("n1", 2), ("n2", 2)]),
        ("n1:4, n2:4", [("n1", 4), ("n2", 4)]),
        (" n1 : 4 ,n2:4 ", [("n1", 4), ("n2", 4)]),
        ("28,28,28,28", [("n0", 28), ("n1", 28), ("n2", 28), ("n3", 28)]),
        ("login.cluster-1.example:16,4", [("login.cluster-1.example", 16), ("n1", 4)]),
        (":3", [("n0", 3)]),
        ("10000", [("n0", 10_000)]),
        ("2x4", [("n0", 4), ("n1", 4)]),
        ("1 x 4", [("n0", 4)]),
        ("gpu:8, 2x4, 16", [("gpu", 8), ("n1", 4), ("n2", 4), ("n3", 16)]),
    ],
)
def test_every_form_of_nodes_is_understood(text: str, nodes: list[tuple[str, int]]):
    assert parse_nodes(text) == [(*node, ()) for node in nodes]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1:8,fpga=2", [("n1", 8, (("fpga", 2),))]),
        ("n1:8, fpga=2, disk=1, n2:4", [("n1", 8, (("disk", 1), ("fpga", 2))), ("n2", 4, ())]),
        ("2x4,fpga=1", [("n0", 4, (("fpga", 1),)), ("n1", 4, (("fpga", 1),))]),
    ],
)
def test_counters_belong_to_the_nodes_before_them(text: str, nodes: list[tuple[str, int, Counters]]):
    assert parse_nodes(text) == nodes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not a node"),
        ("x", "'x' is not a node"),
        ("4,", "'' is not a node"),
        ("4,,2", "'' is not a node"),
        ("n1:", "'n1:' is not a node"),
        ("n1:-2", "'n1:-2' is not a node"),
        ("n1:2.5", "'n1:2.5' is not a node"),
        ("n1:2:3", "'n1:2:3' is not a node"),
        ("n[1-3]:2", "is not a node"),
        ("a b:2", "is not a node"),
        ("0", "node 'n0' cannot have 0 cores"),
        ("n1:10001", "node 'n1' cannot have 10001 cores; give it 1 to 10,000"),
        ("1000000000", "node 'n0' cannot have 1000000000 cores"),
        (",".join(["10000"] * 1001), "10,010,000 cores are too many; 10,000,000 is the most in all"),
        ("9999999x9999999", "node 'n0' cannot have 9999999 cores"),
        ("9999999x4", "39,999,996 cores are too many; 10,000,000 is the most in all"),
        ("9" * 5000 + "x1", "cores are too many"),
        ("0x4", "'0x4' is no node at all; write 4, 2x4, n1:2"),
        ("2x", "'2x' is not a node"),
        ("x4", "'x4' is not a node"),
        ("n1:2x4", "'n1:2x4' is not a node"),
        ("n1:2,n1:2", "two nodes are called 'n1'"),
        ("n1:2,4", "two nodes are called 'n1'"),
        ("9" * 5000, "node 'n0' cannot have so many cores"),
        ("fpga=2", "'fpga=2' is not a node"),
        ("n1:2,fpga=", """node 'n1': "fpga=" is not a name with a whole number; write license=4"""),
        ("n1:2,fpga=0", """node 'n1': "fpga" cannot count 0; give it 1 to"""),
        ("n1:2,fpga=1,fpga=2", """node 'n1': "fpga" is given twice"""),
        ("n1:2,gpu=1", """node 'n1': "gpu" is no name for a resource of your own; choose another name"""),
    ],
)
def test_invalid_nodes_are_refused_with_a_sentence(text: str, said: str):
    with pytest.raises(ClusterError) as refusal:
        parse_nodes(text)
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("--nodes: ")
    assert len(str(refusal.value)) < 500


def test_the_default_is_this_host_with_its_usable_cores():
    found = local_nodes(None, {"CUDA_VISIBLE_DEVICES": ""})
    assert found.real
    (node,) = found.specs
    assert node.name == socket.gethostname()
    assert node.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert node.gpus == ()
    assert node.memory > 0


def test_only_gpus_that_the_user_may_use_are_found():
    assert local_nodes(None, {"CUDA_VISIBLE_DEVICES": "3, 1,GPU-5ebe9f43"}).specs[0].gpus == ("3", "1", "GPU-5ebe9f43")


def test_virtual_nodes_are_not_bound_and_share_the_memory():
    found = local_nodes("2,3", {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert not found.real
    assert [(node.name, node.cores, node.gpus) for node in found.specs] == [("n0", (0, 1), ()), ("n1", (0, 1, 2), ())]
    assert 0 < 2 * found.specs[0].memory <= local_nodes(None, {}).specs[0].memory
