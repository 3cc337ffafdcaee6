"""Parallel models on one machine, with the real Open MPI and MPICH."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.support.mpi import ENVIRONMENT, Rank, compiled, ranks
from tests.support.pilot import Run, job, run_requests
from tests.support.serving import Served, served

CPUS = sorted(os.sched_getaffinity(0))
STARTERS = {"openmpi": "mpirun.openmpi", "intelmpi": "mpiexec.hydra"}
FAMILIES = {"openmpi": "openmpi", "intelmpi": "mpich"}

models = pytest.mark.parametrize("model", list(STARTERS))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def parallel(name: str, model: str, programs: Path, cores: int, *args: str, **more: Any) -> dict[str, Any]:
    program = str(compiled(FAMILIES[model], programs))
    return job(
        name,
        program,
        *args,
        **{"model": model, "model_opts": {"mpirun": STARTERS[model]}, "numCores": cores, "env": ENVIRONMENT}
        | {"stdout": f"{name}.out", "stderr": f"{name}.err"}
        | more,
    )


def output_of_ranks(run: Run, name: str) -> list[Rank]:
    """The output of the ranks of a job. The ranks must know each other, and have the marker of one job."""
    assert run.states[name] == "SUCCEED", (run.report[name], (run.wd / f"{name}.err").read_text())
    found = ranks((run.wd / f"{name}.out").read_text())
    assert [rank.rank for rank in found] == list(range(len(found)))
    assert {(rank.size, rank.sum) for rank in found} == {(len(found), len(found))}
    (marker,) = {rank.marker for rank in found}
    assert marker != "-"
    assert {rank.host for rank in found} == {socket.gethostname()}
    return found


@models
def test_each_process_has_one_of_the_granted_cpus(model: str, programs: Path, run_dir: Path):
    run = run_requests(run_dir, [parallel("p", model, programs, len(CPUS))], options=())
    assert [rank.cpus for rank in output_of_ranks(run, "p")] == [(cpu,) for cpu in CPUS]


@models
def test_jobs_at_the_same_time_have_different_cpus(model: str, programs: Path, run_dir: Path):
    # Each job waits for the other, so the jobs must run at the same time.
    meet = 'touch "$0"; for i in $(seq 3000); do [ -e "$1" ] && break; sleep 0.01; done; exec "$2"'
    program = str(compiled(FAMILIES[model], programs))
    jobs = [
        parallel(name, model, programs, 1, exec="bash", args=["-c", meet, name, other, program])
        for name, other in (("a", "b"), ("b", "a"))
    ]
    run = run_requests(run_dir, jobs, options=())
    cpus = [cpu for name in ("a", "b") for rank in output_of_ranks(run, name) for cpu in rank.cpus]
    assert sorted(cpus) == CPUS[:2]


@models
def test_virtual_nodes_are_this_machine_and_bind_nothing(model: str, programs: Path, run_dir: Path):
    run = run_requests(run_dir, [parallel("p", model, programs, 4)], options=("--nodes", "3,2"))
    found = output_of_ranks(run, "p")
    assert len(found) == 4
    assert {rank.cpus for rank in found} == {tuple(CPUS)}


@models
def test_arguments_reach_every_process_as_they_are(model: str, programs: Path, run_dir: Path):
    args = ["a b", "", ":", "'", '"', "$x", "*", "-n"]
    run = run_requests(run_dir, [parallel("p", model, programs, 2, *args)])
    assert {rank.args for rank in output_of_ranks(run, "p")} == {"".join(f"<{argument}>" for argument in args)}


@models
def test_a_script_runs_in_every_process(model: str, programs: Path, run_dir: Path):
    program = compiled(FAMILIES[model], programs)
    one = parallel("p", model, programs, 2, script=f"x='a b'\n{program} \"$x\"")
    del one["execution"]["exec"], one["execution"]["args"]
    run = run_requests(run_dir, [one])
    assert [rank.args for rank in output_of_ranks(run, "p")] == ["<a b>", "<a b>"]


@models
def test_a_virtual_environment_reaches_every_process(model: str, programs: Path, run_dir: Path):
    (run_dir / "v/bin").mkdir(parents=True)
    (run_dir / "v/bin/activate").write_text("export VIRTUAL_ENV=active\n")
    run = run_requests(run_dir, [parallel("p", model, programs, 2, venv=str(run_dir / "v"))])
    assert [rank.venv for rank in output_of_ranks(run, "p")] == ["active", "active"]


@models
def test_job_info_has_the_command_after_a_crash_and_no_file_is_left(model: str, programs: Path, run_dir: Path):
    def command(service: Served) -> str:
        runtime = service.data("jobInfo", jobNames=["p"])["jobs"]["p"]["data"]["runtime"]
        return str(runtime["command"])

    with served(run_dir) as service:
        service.submit(parallel("p", model, programs, 1))
        service.wait("p", "SUCCEED")
        first = command(service)
        assert first.startswith(STARTERS[model])
        if model == "openmpi":
            assert f"--rankfile {service.run_dir}/files/" in first
        assert not any(path.is_file() for path in service.run_dir.glob("files/**/*"))
        service.kill()
        # The nodes are virtual from now on, so attempts are not bound to cores.
        service.resume("--nodes", "2")
        assert command(service) == first


@models
def test_a_program_on_one_core_needs_no_mpirun(model: str, programs: Path, run_dir: Path):
    one = parallel("p", model, programs, 1, "a b", model_opts={})
    run = run_requests(run_dir, [one, job("q", "true", model="srunmpi")], options=())
    assert [(rank.args, len(rank.cpus)) for rank in output_of_ranks(run, "p")] == [("<a b>", 1)]
    assert run.states["q"] == "SUCCEED"


def test_jobs_do_not_see_the_allocation_that_a_local_run_is_inside_of(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_NTASKS", "64")
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    monkeypatch.setenv("PMI_RANK", "0")
    jobs = [job("env", script="env | grep -E '^(SLURM|PMI)' | sort", stdout="env.out")]
    local = ("--resources", "local", "--nodes", "2")
    assert run_requests(run_dir, jobs, options=local).states == {"env": "SUCCEED"}
    assert (run_dir / "env.out").read_text() == ""
    assert run_requests(run_dir, jobs, options=(*local, "--envschema", "slurm")).states == {"env": "SUCCEED"}
    seen = dict(line.split("=", 1) for line in (run_dir / "env.out").read_text().splitlines())
    assert seen["SLURM_NTASKS"] == "1"
    assert {"SLURM_JOB_ID", "SLURMD_NODENAME", "PMI_RANK"}.isdisjoint(seen)


def test_srunmpi_outside_an_allocation_fails_with_advice(run_dir: Path):
    run = run_requests(run_dir, [job("p", "true", model="srunmpi", numCores=2)])
    assert run.states == {"p": "FAILED"}
    assert "this run uses no allocation; start it inside one" in run.report["p"]["messages"]


def test_numbers_in_a_rankfile_are_those_of_the_operating_system(programs: Path, run_dir: Path):
    """The topology has one core with two threads, so the second CPU is no separate core."""
    environment = {**ENVIRONMENT, "HWLOC_SYNTHETIC": "pack:1 core:1 pu:2", "HWLOC_THISSYSTEM": "1"}
    run = run_requests(run_dir, [parallel("p", "openmpi", programs, 2, env=environment)], options=())
    assert [rank.cpus for rank in output_of_ranks(run, "p")] == [(0,), (1,)]


def test_openmpi_writes_errors_to_the_streams_of_the_job(run_dir: Path):
    one = job("p", "no-such-program", model="openmpi", numCores=2, stderr="err", env=ENVIRONMENT)
    run = run_requests(run_dir, [one])
    assert run.states == {"p": "FAILED"}
    assert "no-such-program" in (run_dir / "err").read_text()
    assert json.loads((run_dir / "jobs.report").read_text().splitlines()[0])["runtime"]["exit_code"] != "0"
