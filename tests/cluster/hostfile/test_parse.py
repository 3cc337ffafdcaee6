"""Host files: their forms, and the errors in them."""

from __future__ import annotations

import pytest

from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.find import find_nodes
from qcg.pilotjob.cluster.hostfile.parse import parse_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1 4\nn2 2\n", [("n1", 4), ("n2", 2)]),
        ("n1:4\nn2 : 2", [("n1", 4), ("n2", 2)]),
        ("n1 slots=4\nn2  slots = 2", [("n1", 4), ("n2", 2)]),
        ("# two hosts\n\n  n1\t4   # the first\n\nme@n2.example.org 2\n", [("n1", 4), ("me@n2.example.org", 2)]),
    ],
)
def test_a_line_has_a_host_and_its_number_of_cores(text: str, hosts: list[tuple[str, int]]):
    assert parse_hosts(text, "hosts") == hosts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n1 4\nn2\n", "hosts, line 2: 'n2' is not a host with its number of cores; write NAME CORES, NAME:CORES"),
        ("n1 4 5", "hosts, line 1: 'n1 4 5' is not a host"),
        ("-oProxyCommand=x 4", "line 1: '-oProxyCommand=x 4' is not a host"),
        ("-x 4", "line 1: '-x 4' is not a host"),
        ("n1 0", "hosts, line 1: host 'n1' cannot have 0 cores; give it 1 to 10,000"),
        ("n1 999999", "line 1: host 'n1' cannot have 999999 cores"),
        ("n1 4\n\nn1:2", "hosts, line 3: host 'n1' is listed twice"),
        ("# nothing\n", "hosts lists no hosts; write NAME CORES"),
    ],
)
def test_an_error_names_the_file_and_the_line(text: str, message: str):
    with pytest.raises(ClusterError) as refused:
        parse_hosts(text, "hosts")
    assert message in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused():
    with pytest.raises(ClusterError, match=r"--resources hostfile:/no/hosts: the file cannot be read: No such file"):
        find_nodes("hostfile:/no/hosts", None, {})


def test_virtual_nodes_and_a_host_file_contradict_each_other():
    with pytest.raises(ClusterError, match="--resources hostfile:/no/hosts takes real ones"):
        find_nodes("hostfile:/no/hosts", "2x4", {})
