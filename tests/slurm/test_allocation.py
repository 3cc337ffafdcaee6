"""`find_nodes` inside real allocations returns the resources that Slurm granted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.core.resources import NodeSpec
from tests.support.slurm_cluster import Cluster, Job, lent, running_cluster
from tests.support.waiting import wait_for

FIND = """python - <<'END'
import os, sys, msgspec
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.find import find_nodes
try:
    found = find_nodes("slurm", None, os.environ)
except ClusterError as error:
    sys.exit(str(error))
print(msgspec.json.encode(found).decode())
END
"""
EVERY_CORE = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def threaded_cluster(clusters_are_possible: None) -> Iterator[Cluster]:
    """A node with four cores of two threads each."""
    with running_cluster(nodes=1, cpus=8, threads=2) as cluster:
        yield cluster


@pytest.fixture
def threaded(threaded_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    yield from lent(threaded_cluster, tmp_path)


def found_by(job: Job) -> dict[str, Any]:
    assert job.wait() == 0, job.output
    return json.loads(job.output.splitlines()[0])


def specs_of(found: dict[str, Any]) -> list[NodeSpec]:
    return [
        NodeSpec(one["name"], tuple(one["cores"]), tuple(one.get("gpus", ())), one.get("memory", 0))
        for one in found["specs"]
    ]


@pytest.fixture
def other_batch_jobs(cluster: Cluster) -> None:
    """Other jobs have three CPUs and a GPU of n1, and all of n3."""
    for name, ntasks, gres in (("n1", 3, "gpu:1"), ("n3", 4, "gpu:2")):
        job = cluster.sbatch(f"touch {name}; exec sleep 600", nodelist=name, ntasks=ntasks, mem=100, gres=gres)
        wait_for((cluster.cwd / name).exists, what=f"job {job.id}")


def test_find_nodes_returns_whole_nodes(cluster: Cluster):
    found = found_by(cluster.sbatch(FIND, nodes=4, exclusive=True))
    assert specs_of(found) == [NodeSpec(f"n{i}", EVERY_CORE, ("0", "1"), 4000) for i in (1, 2, 3, 4)]
    assert found["addresses"] == {f"n{i}": f"10.77.0.{i}" for i in (1, 2, 3, 4)}
    assert found["end"] is None or found["end"] > time.time() + 300 * 86400


def test_find_nodes_returns_nodes_with_different_numbers_of_cores(cluster: Cluster):
    job = cluster.sbatch(FIND + "echo $SLURM_JOB_CPUS_PER_NODE", nodes=3, ntasks=6, mem_per_cpu=100)
    assert specs_of(found_by(job)) == [
        NodeSpec("n1", EVERY_CORE, (), 400),
        NodeSpec("n2", (0,), (), 100),
        NodeSpec("n3", (0,), (), 100),
    ]
    assert job.output.splitlines()[1] == "4,1(x2)"


@pytest.mark.usefixtures("other_batch_jobs")
def test_find_nodes_returns_only_the_granted_part_of_shared_nodes(cluster: Cluster):
    ask = "srun -N3 -n3 --overlap bash -c 'echo $SLURMD_NODENAME $SLURM_CPUS_ON_NODE $CUDA_VISIBLE_DEVICES' | sort"
    job = cluster.sbatch(FIND + ask, nodelist="n[1-2,4]", ntasks=8, mem_per_cpu=100, gres="gpu:1")
    assert specs_of(found_by(job)) == [
        NodeSpec("n1", (3,), ("1",), 100),
        NodeSpec("n2", EVERY_CORE, ("0",), 400),
        NodeSpec("n4", (0, 1, 2), ("0",), 300),
    ]
    assert job.output.splitlines()[1:] == ["n1 1 1", "n2 4 0", "n4 3 0"]


def test_an_allocation_of_salloc_is_found_on_the_login_node(cluster: Cluster):
    found = json.loads(cluster.salloc("bash", "-c", FIND, nodes=2, ntasks=2, cpus_per_task=3, mem=2048).stdout)
    assert specs_of(found) == [NodeSpec("n1", (0, 1, 2), (), 2048), NodeSpec("n2", (0, 1, 2), (), 2048)]


def test_each_task_of_an_array_has_its_own_allocation(cluster: Cluster):
    output = cluster.cwd / "%a.out"
    wait_for_others = "until [ $(cat ?.out | wc -l) = 6 ]; do sleep 0.05; done"
    script = f"{FIND}echo $SLURM_JOB_ID\n{wait_for_others}"
    job = cluster.sbatch(script, array="1-3", nodelist="n2", ntasks=1, mem=100, output=output)
    outputs = [cluster.cwd / f"{task}.out" for task in (1, 2, 3)]
    wait_for(lambda: all(path.exists() and path.read_text().count("\n") == 2 for path in outputs), 60, "the array")
    found = [json.loads(path.read_text().splitlines()[0]) for path in outputs]
    assert [one["ref"]["id"] for one in found] == [path.read_text().splitlines()[1] for path in outputs]
    assert sorted((spec.name, spec.cores) for one in found for spec in specs_of(one)) == [
        ("n2", (0,)),
        ("n2", (1,)),
        ("n2", (2,)),
    ]
    assert job.id in {one["ref"]["id"] for one in found}


def test_the_end_of_the_allocation_follows_changes_of_the_time_limit(cluster: Cluster):
    script = "scontrol update job=$SLURM_JOB_ID timelimit=7\n" + FIND + "squeue -h -j $SLURM_JOB_ID -o %e"
    before = time.time()
    job = cluster.sbatch(script, time=5, env={"TZ": "Asia/Kolkata", "SLURM_TIME_FORMAT": "relative"})
    end = found_by(job)["end"]
    assert before + 7 * 60 - 5 < end < time.time() + 7 * 60 + 5


def test_find_nodes_returns_all_hardware_threads_of_granted_cores(threaded: Cluster):
    blocking = threaded.sbatch("touch up; exec sleep 600", ntasks=2, mem=100)
    wait_for((threaded.cwd / "up").exists)
    found = found_by(threaded.sbatch(FIND, ntasks=5, mem=100))
    assert blocking.state == "RUNNING"
    assert specs_of(found) == [NodeSpec("n1", (2, 3, 4, 5, 6, 7), (), 100)]


@pytest.mark.parametrize("wish", [{"hint": "nomultithread"}, {"threads_per_core": 1}])
def test_find_nodes_returns_one_thread_per_core_on_request(threaded: Cluster, wish: dict[str, object]):
    blocking = threaded.sbatch("touch up; exec sleep 600", ntasks=2, mem=100)
    wait_for((threaded.cwd / "up").exists)
    job = threaded.sbatch(FIND + "echo $SLURM_JOB_CPUS_PER_NODE", ntasks=3, mem=100, **wish)
    found = found_by(job)
    assert blocking.state == "RUNNING"
    assert specs_of(found) == [NodeSpec("n1", (2, 4, 6), (), 100)]
    assert found["cpus"] == {"n1": [2, 3, 4, 5, 6, 7]}
    assert job.output.splitlines()[1] == "3"


def test_a_heterogeneous_job_is_refused(cluster: Cluster):
    job = cluster.sbatch(FIND, nodes=1, ntasks=2, mem=100, components=[{"nodes": 2, "ntasks": 4, "mem": 100}])
    assert job.wait() == 1
    assert f"job {job.id} is heterogeneous (jobs {job.id}-{int(job.id) + 1})" in job.output


def test_a_job_that_slurm_does_not_know_is_refused(cluster: Cluster):
    done = cluster.run("bash", "-c", FIND, env={"SLURM_JOB_ID": "4711000"}, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("--resources slurm: Slurm does not know job 4711000 (SLURM_JOB_ID); start inside")


def test_a_job_that_has_ended_is_refused(cluster: Cluster):
    job = cluster.sbatch("true")
    assert job.wait() == 0
    wait_for(lambda: job.state == "COMPLETED")
    done = cluster.run("bash", "-c", FIND, env={"SLURM_JOB_ID": job.id}, check=False)
    assert done.stderr.startswith(f"--resources slurm: job {job.id} (SLURM_JOB_ID) does not run: it is COMPLETED;")


@pytest.mark.usefixtures("clusters_are_possible")
def test_an_unreachable_controller_is_reported_without_a_traceback():
    with running_cluster(nodes=1, configuration="MessageTimeout=2") as cluster:
        cluster.kill_controller()
        done = cluster.run("bash", "-c", FIND, env={"SLURM_JOB_ID": "1"}, check=False)
    assert done.returncode == 1
    assert "`scontrol show job -d 1` failed: slurm_load_jobs error: Unable to contact slurm controller" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_request_file_is_checked_against_the_allocation(cluster: Cluster):
    job = {"name": "wide", "execution": {"exec": "true"}, "resources": {"numCores": {"exact": 7}}}
    (cluster.cwd / "wide.json").write_text(json.dumps([{"request": "submit", "jobs": [job]}]))
    checking = cluster.sbatch("qcg-pm validate wide.json", nodes=2, ntasks=6, mem_per_cpu=100)
    assert checking.wait() == 1
    assert "checked against 6 cores on 2 nodes" in checking.output
