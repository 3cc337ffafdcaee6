"""Remote hosts of a run: their nodes, and errors that prevent a run from starting with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.common.options import Options, UsageError
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.executors.ssh.config import parse_hosts
from qcg.pilotjob.executors.ssh.marker import HostMarker
from qcg.pilotjob.manager.remote_hosts import check_used_hosts, find_remote_hosts, node_specs


def test_each_host_is_a_node_of_its_own_group():
    hosts = parse_hosts(
        '[wizard]\nowner = "hobo"\ncores = 2\ngpus = 1\nmemory = 100\n[hpc]\nbatch = "slurm"\njobs = 3', "hosts.toml"
    )
    assert node_specs(hosts) == [
        NodeSpec("wizard", (0, 1), ("0",), 100, group="wizard", owner="hobo"),
        NodeSpec("hpc", (0, 1, 2), group="hpc", slots=True),
    ]


def test_a_host_with_the_name_of_a_node_of_the_run_is_refused(tmp_path: Path):
    path = tmp_path / "hosts.toml"
    path.write_text("[n0]\n")
    with pytest.raises(UsageError, match="names a remote host 'n0', which is also a node of this run"):
        find_remote_hosts(Options(hosts=str(path)), [NodeSpec("n0", (0,))])


def test_a_run_is_not_resumed_without_a_host_that_may_have_its_jobs(tmp_path: Path):
    marker = HostMarker(tmp_path, "wizard")
    check_used_hosts(tmp_path, {})
    marker.set("connected")
    with pytest.raises(UsageError, match="may have jobs on wizard.*--hosts"):
        check_used_hosts(tmp_path, {})
    check_used_hosts(tmp_path, parse_hosts("[wizard]", "hosts.toml"))
    marker.set("closed")
    check_used_hosts(tmp_path, {})


def test_an_unreadable_marker_counts_as_one_of_a_host_with_jobs(tmp_path: Path):
    HostMarker(tmp_path, "wizard").set("closed")
    (tmp_path / "hosts/wizard").write_text("{")
    with pytest.raises(UsageError, match="may have jobs on wizard"):
        check_used_hosts(tmp_path, {})
