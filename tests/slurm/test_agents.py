"""One agent on every node of an allocation: jobs run everywhere, fast, and the controller hears nothing of it."""

from __future__ import annotations

import re
from collections import Counter

from tests.slurm.allocated import Allocated
from tests.support.pilot import job
from tests.support.slurm_cluster import Cluster


def test_jobs_run_on_all_nodes_and_nothing_is_left_behind(cluster: Cluster):
    where = job("where", "bash", "-c", "hostname; sleep 1", iteration={"stop": 16}, stdout="out.${it}")
    run = Allocated(cluster, [where]).wait()
    assert run.done.returncode == 0, run.done.stdout
    hosts = Counter((cluster.cwd / f"out.{index}").read_text().strip() for index in range(16))
    assert hosts == {"n1": 4, "n2": 4, "n3": 4, "n4": 4}
    log = (cluster.cwd / "service.log").read_text()
    assert "starting 4 agents on n1, n2, n3, n4" in log
    assert len(re.findall("jobs are not bound to their cores", log)) == 1
    assert not list(cluster.cwd.glob(".qcgpjm-service-*/agent-*.json"))
    assert not list(cluster.cwd.glob(".qcgpjm-service-*/contact.json"))
