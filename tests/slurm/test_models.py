"""With each execution model, programs run on exactly the granted hosts and cores."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.allocation_run import AllocationRun, granted_cores, run_in
from tests.support.mpi import ENVIRONMENT, compiled, ranks
from tests.support.pilot import Run, job
from tests.support.slurm_cluster import Cluster

SHOW_PLACE = (
    "read -r _ cpus < <(grep Cpus_allowed_list /proc/self/status); rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK};"
    ' echo "host=$(hostname) cpus=$cpus gpus=${CUDA_VISIBLE_DEVICES-none} rank=${rank:-${SLURM_PROCID:-0}}'
    ' marker=$QCG_PM_STEP_ID"'
)
"""A script that prints the host, CPUs, GPUs and rank of one process."""

OPTIONS: dict[str, dict[str, Any]] = {
    "openmpi": {"mpirun": "mpirun.openmpi"},
    "intelmpi": {"mpirun": "mpiexec.hydra"},
    "srunmpi": {},
}
models = pytest.mark.parametrize("model", list(OPTIONS))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def parallel(name: str, model: str, **more: Any) -> dict[str, Any]:
    streams = {"stdout": f"{name}.out", "stderr": f"{name}.err"}
    program = {} if "exec" in more else {"script": SHOW_PLACE}
    return job(name, **{"model": model, "model_opts": OPTIONS[model], "env": ENVIRONMENT, **program, **streams, **more})


def granted(run: Run, name: str) -> list[tuple[str, int]]:
    """Node and core of each process that a job may start, in order."""
    entry = run.report[name]
    errors = run.wd / f"{name}.err"
    assert entry["state"] == "SUCCEED", (entry, errors.exists() and errors.read_text())
    return granted_cores(entry)


def processes_of(run: Run, name: str) -> list[dict[str, str]]:
    """The output of each process of a job, in the order of ranks. Checks that all have the marker of the same job."""
    lines = [line for line in (run.wd / f"{name}.out").read_text().splitlines() if line.startswith("host=")]
    found = [dict(word.split("=", 1) for word in line.split()) for line in lines]
    assert len({one["marker"] for one in found}) == 1
    found.sort(key=lambda one: int(one["rank"]))
    assert [one["rank"] for one in found] == [str(place) for place in range(len(found))]
    return found


def hosts(run: Run, name: str) -> list[str]:
    return [one["host"] for one in processes_of(run, name)]


@models
def test_processes_run_on_the_granted_nodes(model: str, cluster: Cluster):
    shapes: dict[str, dict[str, Any]] = {
        "inside": {"numCores": 3},
        "across": {"numNodes": 2, "numCores": 2},
        "uneven": {"numCores": 7},
        "whole": {"numNodes": 4},
    }
    run = AllocationRun(cluster, [parallel(name, model, **shape) for name, shape in shapes.items()]).wait()
    for name in shapes:
        assert hosts(run, name) == [node for node, _ in granted(run, name)]
    assert len(set(hosts(run, "inside"))) == 1
    assert sorted(Counter(hosts(run, "across")).values()) == [2, 2]
    assert len(set(Counter(hosts(run, "uneven")).values())) == 2
    assert Counter(hosts(run, "whole")) == {"n1": 4, "n2": 4, "n3": 4, "n4": 4}


@models
def test_four_concurrent_jobs_share_nodes(model: str, cluster: Cluster):
    # Each process waits until one of every job is there: they cannot have run one after the other.
    meet = 'touch "here.$QCG_PM_JOB"; for name in a b c d; do until [ -e "here.$name" ]; do sleep 0.05; done; done; '
    jobs = [
        parallel(name, model, script=meet + SHOW_PLACE, numNodes=4, numCores=1, env={**ENVIRONMENT, "QCG_PM_JOB": name})
        for name in "abcd"
    ]
    run = AllocationRun(cluster, jobs).wait()
    places = [place for name in "abcd" for place in granted(run, name)]
    assert len(places) == len(set(places)) == 16
    for name in "abcd":
        assert hosts(run, name) == [node for node, _ in granted(run, name)]


@models
def test_each_process_is_bound_to_one_granted_cpu(model: str, real_cluster: Cluster):
    shapes: dict[str, dict[str, Any]] = {
        "one": {"numCores": 1},
        "two": {"numNodes": 1, "numCores": 2},
        "across": {"numNodes": 2, "numCores": 1},
        "uneven": {"numCores": 3},
        "all": {"numNodes": 2},
    }
    jobs = [parallel(name, model, **shape) for name, shape in shapes.items()]
    run = AllocationRun(real_cluster, jobs, nodes=2, ntasks_per_node=2).wait()
    for name in shapes:
        found = [(one["host"], int(one["cpus"])) for one in processes_of(run, name)]
        assert found == granted(run, name), "the cores of this cluster are called as its CPUs are"
    assert "not bound" not in (real_cluster.cwd / "service.log").read_text()


@models
def test_nodes_of_a_job_may_have_different_cpus(model: str, real_cluster: Cluster):
    """The first CPU of one node is taken: the job has the second one there, and both of the other node."""
    other = job("other", script="until [ -e p.out ]; do sleep 0.05; done", numCores=1)
    run = AllocationRun(real_cluster, [other, parallel("p", model, numCores=3)], nodes=2, ntasks_per_node=2).wait()
    places = granted(run, "p")
    assert sorted(core for _, core in places) == [0, 1, 1]
    assert [(one["host"], int(one["cpus"])) for one in processes_of(run, "p")] == places


def test_jobs_use_only_the_granted_part_of_a_node(real_cluster: Cluster):
    jobs = [parallel(model, model, numCores=1) for model in OPTIONS]
    part: dict[str, Any] = {"nodes": 1, "nodelist": "n1", "ntasks_per_node": 1, "mem": 500}
    other = real_cluster.sbatch("exec sleep 600", **part)
    other.wait_until_running()
    run = AllocationRun(real_cluster, jobs, **part).wait()
    for model in OPTIONS:
        assert [(one["host"], one["cpus"]) for one in processes_of(run, model)] == [("n1", "1")]


def test_threads_are_bound_to_all_their_cores(real_cluster: Cluster):
    show = SHOW_PLACE.replace(
        " rank=${rank:-${SLURM_PROCID:-0}}", " rank=0 threads=$OMP_NUM_THREADS cpu_set=$QCG_PM_CPU_SET"
    )
    both = job("both", script=show, model="threads", numCores=2, stdout="both.out")
    one = job("one", script=show, model="threads", numCores=1, stdout="one.out")
    run = AllocationRun(real_cluster, [both, one], nodes=1, ntasks_per_node=2).wait()
    (found,) = processes_of(run, "both")
    assert (found["cpus"], found["threads"], found["cpu_set"]) == ("0-1", "2", "0,1")
    (found,) = processes_of(run, "one")
    assert (found["cpus"], found["threads"], found["cpu_set"]) == ("0", "1", "0")


def test_nodes_that_claim_more_cpus_than_they_have_run_jobs_unbound_and_log_it_once(cluster: Cluster):
    jobs = [parallel(model, model, numCores=6) for model in OPTIONS]
    run = AllocationRun(cluster, jobs).wait()
    for model in OPTIONS:
        assert len({one["cpus"] for one in processes_of(run, model)}) == 1, "all of them may use all CPUs"
    log = (cluster.cwd / "service.log").read_text()
    assert len(re.findall("jobs are not bound to their cores", log)) == 1


def test_open_mpi_ranks_communicate_across_nodes(cluster: Cluster, programs: Path):
    program = str(compiled("openmpi", programs))
    run = AllocationRun(cluster, [parallel("p", "openmpi", exec=program, args=["a b", ":"], numCores=7)]).wait()
    nodes = [node for node, _ in granted(run, "p")]
    found = ranks((cluster.cwd / "p.out").read_text())
    assert [(rank.rank, rank.size, rank.sum, rank.host) for rank in found] == [
        (place, 7, 7, node) for place, node in enumerate(nodes)
    ]
    assert {rank.args for rank in found} == {"<a b><:>"}


def test_mpich_ranks_communicate_inside_a_node(cluster: Cluster, programs: Path):
    program = str(compiled("mpich", programs))
    run = AllocationRun(cluster, [parallel("p", "intelmpi", exec=program, numNodes=1, numCores=3)]).wait()
    nodes = [node for node, _ in granted(run, "p")]
    found = ranks((cluster.cwd / "p.out").read_text())
    assert [(rank.rank, rank.size, rank.sum, rank.host) for rank in found] == [
        (place, 3, 3, node) for place, node in enumerate(nodes)
    ]


def test_programs_on_one_core_start_as_singletons_without_mpirun_or_srun(cluster: Cluster, programs: Path):
    for starter in ("mpirun", "srun"):
        (programs / starter).write_text("#!/bin/sh\nexit 1\n")
        (programs / starter).chmod(0o755)
    without_starters = {**ENVIRONMENT, "PATH": f"{programs}:{os.environ['PATH']}"}
    families = {"openmpi": "openmpi", "intelmpi": "mpich", "srunmpi": "openmpi"}
    jobs = [
        parallel(model, model, exec=str(compiled(family, programs)), numCores=1, model_opts={}, env=without_starters)
        for model, family in families.items()
    ]
    run = AllocationRun(cluster, jobs).wait()
    for model in families:
        ((node, _),) = granted(run, model)
        found = ranks((cluster.cwd / f"{model}.out").read_text())
        assert [(rank.rank, rank.size, rank.sum, rank.host) for rank in found] == [(0, 1, 1, node)]


def test_srun_args_of_a_job_follow_the_default_arguments(cluster: Cluster, programs: Path):
    program = str(compiled("openmpi", programs))
    one = parallel("p", "srunmpi", exec=program, numNodes=1, numCores=2, model_opts={"srun_args": ["--mpi=pmix"]})
    run = AllocationRun(cluster, [one]).wait()
    found = ranks((cluster.cwd / "p.out").read_text())
    assert [(rank.rank, rank.sum, rank.host) for rank in found] == [
        (place, 2, node) for place, (node, _) in enumerate(granted(run, "p"))
    ]


@models
def test_processes_see_the_gpus_granted_on_their_node(model: str, cluster: Cluster):
    """First one GPU of n1 is taken, so that the next job gets another one there than elsewhere."""
    wait = job("taken", script="until [ -e p.out ]; do sleep 0.05; done", numNodes=1, nodeCrs={"gpu": 1})
    one = parallel("p", model, numNodes=4, numCores=1, nodeCrs={"gpu": 1})
    none = parallel("none", model, numNodes=2, numCores=1, dependencies={"after": ["p"]})
    run = AllocationRun(
        cluster, [wait | {"resources": {"numCores": 1, "nodeCrs": {"gpu": 1}}}, one, none], gres="gpu:2"
    ).wait()
    seen = {found["host"]: found["gpus"] for found in processes_of(run, "p")}
    assert sorted(Counter(seen.values()).items()) == [("0", 3), ("1", 1)]
    assert {found["gpus"] for found in processes_of(run, "none")} == {""}


@models
def test_venv_and_environment_reach_every_process(model: str, cluster: Cluster):
    (cluster.cwd / "v/bin").mkdir(parents=True)
    (cluster.cwd / "v/bin/activate").write_text("export VIRTUAL_ENV=active\n")
    script = f'{SHOW_PLACE.rstrip(chr(34))} venv=$VIRTUAL_ENV own=$OWN"'
    env = {**ENVIRONMENT, "OWN": "mine"}
    run = AllocationRun(
        cluster, [parallel("p", model, script=script, venv="v", env=env, numNodes=2, numCores=1)]
    ).wait()
    assert run.states == {"p": "SUCCEED"}, (cluster.cwd / "p.err").read_text()
    assert [(one["venv"], one["own"]) for one in processes_of(run, "p")] == [("active", "mine")] * 2


GIVEN = {
    "QCG_PM_": ["NNODES", "NODELIST", "NPROCS", "NTASKS", "STEP_ID", "TASKS_PER_NODE", "CPU_SET"],
    "SLURM_": ["NNODES", "NODELIST", "NPROCS", "NTASKS", "NTASKS_PER_NODE", "TASKS_PER_NODE", "HOSTFILE"],
    "SLURM_JOB_": ["NODELIST", "NUM_NODES"],
    "SLURM_STEP_": ["NODELIST", "NUM_NODES", "NUM_TASKS", "TASKS_PER_NODE"],
}
CONTRACT = {beginning + name for beginning, names in GIVEN.items() for name in names}
STEP_VARIABLES = re.compile("SLURM_(STEP_?ID|PROCID|LOCALID|NODEID|GTIDS|CPU_BIND.*|SRUN_COMM_.*)|PMI.*")


def test_a_job_sees_slurm_variables_of_its_own_grant_only(cluster: Cluster):
    write = "import json, os; json.dump(dict(os.environ), open(os.environ['FILE'], 'w'))"
    jobs = [
        job("one", "python3", "-c", write, env={"FILE": "one.json"}, numCores=2),
        job("wide", "python3", "-c", write, env={"FILE": "wide.json"}, numNodes=2, numCores=3),
        job("threads", "python3", "-c", write, env={"FILE": "threads.json"}, model="threads", numCores=2),
        job("machines", script='cat "$SLURM_HOSTFILE"', numNodes=2, numCores=2, stdout="machines.out"),
    ]
    run = AllocationRun(cluster, jobs).wait()
    assert set(run.states.values()) == {"SUCCEED"}
    for name in ("one", "wide", "threads"):
        env = json.loads((cluster.cwd / f"{name}.json").read_text())
        assert CONTRACT - set(env) == set()
        assert [variable for variable in env if STEP_VARIABLES.fullmatch(variable)] == []
        nodes = list(dict.fromkeys(node for node, _ in granted(run, name)))
        assert env["SLURM_NODELIST"] == env["SLURM_JOB_NODELIST"] == env["QCG_PM_NODELIST"] == ",".join(nodes)
        assert env["SLURM_NTASKS"] == str(len(granted(run, name)))
        assert not Path(env["SLURM_HOSTFILE"]).exists() or "/shared/" in env["SLURM_HOSTFILE"]
    lines = (cluster.cwd / "machines.out").read_text().split()
    assert lines == [node for node, _ in granted(run, "machines")]


def test_jobs_of_a_local_run_do_not_see_the_allocation(cluster: Cluster):
    """Even if the manager is a step of `srun`: an MPI program must not join that step."""
    (cluster.cwd / "step").mkdir()
    show = "env | grep -E '^(SLURM|PMI)' | grep -v '^SLURM_CONF=' | sort"
    step = "srun -n 1 qcg-pm run requests.json --wd step --resources local --report-format json"
    jobs = [job("env", script=show, stdout="env.out")]
    run = AllocationRun(
        cluster, jobs, "--resources local", nodes=1, ntasks_per_node=1, then=f"{step}; exit $code"
    ).wait()
    assert run.states == {"env": "SUCCEED"}
    assert (cluster.cwd / "env.out").read_text() == ""
    assert run_in(cluster.cwd / "step").states == {"env": "SUCCEED"}
    assert (cluster.cwd / "step/env.out").read_text() == ""


def test_srun_and_mpirun_in_a_job_stay_on_its_nodes(cluster: Cluster):
    """Two jobs on the same nodes, each with `srun` and `mpirun` of its own, at the same time."""
    script = """
    touch here.$0; until [ -e here.a ] && [ -e here.b ]; do sleep 0.05; done
    srun hostname; mpirun.openmpi hostname
    """
    jobs = [
        job(name, "bash", "-c", script, name, env=ENVIRONMENT, numNodes=2, numCores=2, stdout=f"{name}.out")
        for name in ("a", "b")
    ]
    run = AllocationRun(cluster, jobs, nodes=2).wait()
    for name in ("a", "b"):
        found = (cluster.cwd / f"{name}.out").read_text().split()
        assert Counter(found) == Counter(2 * [node for node, _ in granted(run, name)])
