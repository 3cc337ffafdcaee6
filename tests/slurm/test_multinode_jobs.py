"""Jobs that span nodes: how they are ended, and when they succeed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.slurm.allocation_run import AllocationRun
from tests.slurm.concurrent_tests import concurrent_test, long_concurrent_test_on
from tests.support.pilot import job
from tests.support.slurm_cluster import Cluster
from tests.support.waiting import wait_for

RANK = """
host=$(hostname)
trap 'sleep 1; echo "$host" > term.$SLURM_PROCID; exit 0' TERM
echo "$host" > up.$SLURM_PROCID
while :; do sleep 0.1; done
"""


def ranks(name: str = "ranks", **more: Any) -> dict[str, Any]:
    """Four ranks on two nodes, which need a second to end after SIGTERM."""
    return job(name, "bash", "-c", RANK, model="srunmpi", numNodes=2, numCores=2, **more)


def written(wd: Path, what: str) -> list[str]:
    return sorted(path.read_text().strip() for path in wd.glob(f"{what}.*") if path.read_text().strip())


def test_all_ranks_of_a_cancelled_job_get_the_grace_period(cluster: Cluster):
    run = AllocationRun(cluster, [ranks()])
    wait_for(lambda: len(written(run.wd, "up")) == 4, what=f"four ranks:\n{run.log}")
    cluster.node("n1").exec("qcg-pm", "cancel", "ranks")
    done = run.wait()
    assert done.states == {"ranks": "CANCELED"}
    assert written(run.wd, "term") == written(run.wd, "up")
    assert len(set(written(run.wd, "up"))) == 2


@concurrent_test
def test_all_ranks_of_a_job_at_its_wall_time_get_the_grace_period(cluster: Cluster):
    run = AllocationRun(cluster, [ranks(wt="15s")])
    done = run.wait()
    assert done.states == {"ranks": "FAILED"}
    assert "wall time" in done.report["ranks"]["messages"]
    assert len(written(run.wd, "up")) == 4, "all ranks started in time"
    assert written(run.wd, "term") == written(run.wd, "up")


@concurrent_test
def test_ranks_that_ignore_sigterm_are_killed_on_every_node(cluster: Cluster):
    stubborn = "trap '' TERM; echo up > up.$SLURM_PROCID; while :; do sleep 0.1; done"
    run = AllocationRun(cluster, [job("ranks", "bash", "-c", stubborn, model="srunmpi", numNodes=2, numCores=1)])
    wait_for(lambda: len(written(run.wd, "up")) == 2, what=f"two ranks:\n{run.log}")
    cluster.node("n1").exec("qcg-pm", "cancel", "ranks")
    assert run.wait().states == {"ranks": "CANCELED"}


@long_concurrent_test_on(nodes=2, slurmd_timeout=4, configuration="MessageTimeout=2")
def test_a_job_fails_if_srun_succeeds_although_a_node_of_the_job_crashed(cluster: Cluster):
    """`srun` exits with 0 when Slurm gives up a node, which happens here before the manager gives it up."""
    rank = "touch up.$SLURM_PROCID; [ $(hostname) = n1 ] || exec sleep 1000"
    careless = {"srun_args": ["--no-kill"]}
    half = job("half", "bash", "-c", rank, model="srunmpi", model_opts=careless, numNodes=2, numCores=1)
    run = AllocationRun(cluster, [half], nodes=2)
    wait_for(lambda: len(list(run.wd.glob("up.*"))) == 2, what="two ranks")
    cluster.node("n2").crash()
    wait_for(lambda: _exit_codes(run), timeout=60, what="the end of srun")
    assert _exit_codes(run) == [0]
    assert "n2: node lost" not in run.log
    done = run.wait()
    assert done.states == {"half": "FAILED"}
    assert "node lost" in done.report["half"]["messages"]


def _exit_codes(run: AllocationRun) -> list[int]:
    """Exit codes of attempts that ended on the first node, from the ledger of its agent."""
    lines = (run.run_dir / "agent-n1.ledger").read_text().splitlines()
    return [json.loads(line)[4] for line in lines if line.startswith('["e"')]
