"""Host files: their forms, and the errors in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.cluster.agent_start import AgentCommand, StartMethod
from qcg.pilotjob.cluster.base import Allocation
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.find import find_nodes
from qcg.pilotjob.cluster.hostfile.parse import Host, parse_hosts
from qcg.pilotjob.cluster.registry import batch_system


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1 4\nn2 2\n", [("n1", 4), ("n2", 2)]),
        ("n1:4\nn2 : 2", [("n1", 4), ("n2", 2)]),
        ("n1 slots=4\nn2  slots = 2", [("n1", 4), ("n2", 2)]),
        ("# two hosts\n\n  n1\t4   # the first\n\nn2.example.org 2\n", [("n1", 4), ("n2.example.org", 2)]),
    ],
)
def test_a_line_has_a_host_and_its_number_of_cores(text: str, hosts: list[tuple[str, int]]):
    assert parse_hosts(text, "hosts") == [Host(name, cores, name) for name, cores in hosts]


def test_a_user_is_a_part_of_the_login_and_not_of_the_name():
    assert parse_hosts("me.too@n2.example.org:2", "hosts") == [Host("n2.example.org", 2, "me.too@n2.example.org")]


def test_nodes_have_names_without_users_and_ssh_gets_the_whole_entry(tmp_path: Path):
    (tmp_path / "hosts").write_text("me@n1 4\nn2 2\n")
    found = find_nodes(f"hostfile:{tmp_path}/hosts", None, {})
    assert isinstance(found, Allocation)
    assert [spec.name for spec in found.specs] == ["n1", "n2"]
    assert found.addresses == {"n1": "n1", "n2": "n2"}
    agent = AgentCommand(tmp_path, 600.0, found.end, found.ref, found.logins)
    commands = batch_system("hostfile").agent_start(StartMethod.SSH, agent, {}).commands(["n1", "n2"])
    assert [command[-2] for _, command in commands] == ["me@n1", "n2"]
    assert "--name n1 " in commands[0][1][-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n1 4\nn2\n", "hosts, line 2: 'n2' is not a host with its number of cores; write NAME CORES, NAME:CORES"),
        ("n1 4 5", "hosts, line 1: 'n1 4 5' is not a host"),
        ("-oProxyCommand=x 4", "line 1: '-oProxyCommand=x 4' is not a host"),
        ("-x 4", "line 1: '-x 4' is not a host"),
        ("n1 0", "hosts, line 1: host 'n1' cannot have 0 cores; give it 1 to 10,000"),
        ("n1 999999", "line 1: host 'n1' cannot have 999999 cores"),
        ("n1 4\n\nn1:2", "hosts, line 3: host 'n1' is listed twice; give each host one line"),
        ("me@n1 4\nyou@n1 2", "line 2: host 'n1' is listed for two users, as me@n1 and as you@n1; give each host"),
        ("a@b@n1 4", "line 1: 'a@b@n1 4' is not a host"),
        ("me@-x 4", "line 1: 'me@-x 4' is not a host"),
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


@pytest.mark.parametrize("line", ["n1 8 fpga=2 disk=1", "n1:8,fpga=2,disk=1", "n1 slots=8 disk=1, fpga=2"])
def test_a_host_has_resources_of_its_own(line: str) -> None:
    (host,) = parse_hosts(line, "hosts")
    assert (host.name, host.cores, host.counters) == ("n1", 8, (("disk", 1), ("fpga", 2)))


def test_a_wrong_resource_is_refused_with_its_line() -> None:
    with pytest.raises(ClusterError) as refused:
        parse_hosts("n1 8 fpga=two", "hosts")
    assert str(refused.value) == (
        """hosts, line 1: host 'n1': "fpga=two" is not a name with a whole number; write license=4"""
    )
