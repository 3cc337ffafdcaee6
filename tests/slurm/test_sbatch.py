"""`qcg-pm sbatch`: submits allocations for a run, one after another while jobs are left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.allocation_run import run_in
from tests.slurm.concurrent_tests import concurrent_test, long_concurrent_test
from tests.support.pilot import job, write_requests
from tests.support.processes import Process
from tests.support.slurm_cluster import Cluster, Done, kill_command
from tests.support.waiting import wait_for


def recorded_job(name: str, line: str = "true", **more: Any) -> dict[str, Any]:
    """A job that appends a line to the file `starts` at each start."""
    return job(name, "bash", "-c", f"echo {name}.$1 >> starts; {line}", "-", "${it}", **more)


class SubmittedRun:
    """A running `qcg-pm sbatch --wait`."""

    def __init__(
        self,
        cluster: Cluster,
        jobs: list[dict[str, Any]],
        *options: str,
        env: dict[str, str] | None = None,
        file: str = "jobs.json",
    ) -> None:
        self.cluster = cluster
        self.wd = cluster.cwd
        write_requests(self.wd / file, jobs)
        self.output_path = self.wd / "output"
        command = ["qcg-pm", "sbatch", file, "--wait", "--report-format", "json", *options]
        with self.output_path.open("w") as out:
            self._process = cluster.start(*command, stdout=out, stderr=subprocess.STDOUT, env=env)

    @property
    def output(self) -> str:
        return self.output_path.read_text()

    @property
    def starts(self) -> list[str]:
        path = self.wd / "starts"
        return path.read_text().split() if path.exists() else []

    @property
    def chain_state(self) -> dict[str, Any]:
        [path] = self.wd.glob(".qcgpjm-alloc-*/chain.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def wait_for_starts_of(self, *names: str) -> None:
        wait_for(lambda: set(names) <= set(self.starts), 60, f"the starts of {', '.join(names)}: {self.output}")

    def wait_for_output(self, words: str) -> None:
        wait_for(lambda: words in self.output, 60, f"{words!r} in {self.output}")

    def processes(self, module: str) -> list[Process]:
        """Processes of the first node that run this module."""
        return [found for found in self.cluster.node("n1").processes() if f" -m {module} " in f"{found} "]

    def kill(self, module: str) -> None:
        # The oldest: a forked child has the same command line until it calls exec.
        process = min(wait_for(lambda: self.processes(module)), key=lambda one: one.started)
        os.kill(process.pid, signal.SIGKILL)

    def wait(self, timeout: float = 60) -> int:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            kill_command(self._process)
            pytest.fail(f"qcg-pm sbatch --wait did not end; its output:\n{self.output}", pytrace=False)

    @property
    def states(self) -> dict[str, str]:
        return run_in(self.wd).states


def submit(cluster: Cluster, *arguments: str | Path, **options: Any) -> Done:
    return cluster.run("qcg-pm", "sbatch", *arguments, **options)


def queue(cluster: Cluster) -> str:
    return cluster.run("squeue", "--noheader", "--format=%i %T").stdout


def test_a_request_file_at_an_unusual_path_runs_in_an_allocation_of_the_requested_size(
    cluster: Cluster,
):
    cluster.cwd = cluster.cwd / 'it\'s a "dir" $HOME'
    cluster.cwd.mkdir()
    line = "hostname; echo $1; until [ -e go ]; do sleep 0.1; done"
    where = job("where", "bash", "-c", line, "-", "a b'c", iteration=6, stdout="out.${it}")
    options = ["--nodes=3", "--cores=2", "--time=10m", "--job-name", 'a "b" c', "--", "--comment", "x 'y'"]
    run = SubmittedRun(cluster, [where, job("bad", "false", after=["where"])], *options, file="my jobs.json")
    run.wait_for_output(" is RUNNING on n[1-3].")
    (cluster.cwd / "go").touch()
    assert run.wait() == 1, run.output  # the exit code of `bad`
    hosts = [(cluster.cwd / f"out.{index}").read_text() for index in range(6)]
    assert sorted(hosts) == [f"{node}\na b'c\n" for node in ("n1", "n1", "n2", "n2", "n3", "n3")]
    [job_id] = re.findall(r"^Submitted batch job (\d+)$", run.output, re.MULTILINE)
    assert "FAILED bad: exit code 1" in run.output
    assert "6 cores on 3 nodes" in run.output
    assert f"Job {job_id} is RUNNING on n[1-3]." in run.output
    shown = cluster.run("scontrol", "show", "job", job_id).stdout
    for fact in ('JobName=a "b" c', "TimeLimit=00:10:00", "Comment=x 'y'", f"WorkDir={cluster.cwd}", "Requeue=1"):
        assert fact in shown
    [script] = cluster.cwd.glob(".qcgpjm-alloc-*/batch.sh")
    assert str(script) in run.output
    assert (script.stat().st_mode & 0o777, script.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert run.states["bad"] == "FAILED"


@concurrent_test
def test_whole_nodes_are_the_default_and_an_unused_next_allocation_is_cancelled(cluster: Cluster):
    run = SubmittedRun(cluster, [job("all", "true", numNodes=2, numCores=4)], "--nodes=2", "--max-allocations=3")
    assert run.wait() == 0, run.output
    assert "8 cores on 2 nodes" in run.output
    assert "is allocation 2 of at most 3" in run.output
    wait_for(lambda: not queue(cluster))
    [first] = run.chain_state["allocations"]
    assert f"Submitted batch job {first}" in run.output


@concurrent_test
def test_a_killed_manager_is_restarted_in_the_same_allocation(cluster: Cluster):
    gate = cluster.cwd / "gate"
    jobs = [recorded_job("many", f"until [ -e {gate} ]; do sleep 0.1; done", iteration=6)]
    run = SubmittedRun(cluster, jobs, "--nodes=1", "--cores=4")
    run.wait_for_starts_of("many.3")
    run.kill("qcg.pilotjob.cli")
    run.wait_for_output("The manager was ended by SIGKILL; another manager continues the run.")
    gate.touch()
    assert run.wait() == 0, run.output
    assert sorted(run.starts) == [f"many.{index}" for index in range(6)]
    assert set(run.states.values()) == {"SUCCEED"}
    assert len(run.chain_state["allocations"]) == 1


@concurrent_test
def test_the_next_allocation_continues_a_run_whose_allocation_was_killed(cluster: Cluster):
    gate = cluster.cwd / "gate"
    # The jobs must outlive the agent: otherwise they would count as jobs that ended by themselves.
    hanging = f"trap '' TERM; touch armed.$1; until [ -e {gate} ]; do sleep 0.1; done"
    jobs = [recorded_job("before", iteration=3), recorded_job("hanging", hanging, after=["before"], iteration=2)]
    run = SubmittedRun(cluster, jobs, "--nodes=2", "--max-allocations=2", "--on-lost=rerun")
    wait_for(lambda: len(list(cluster.cwd.glob("armed.*"))) == 2, what=f"both hanging jobs: {run.output}")
    first, second = run.chain_state["allocations"]
    assert queue(cluster).splitlines().count(f"{second} PENDING") == 1
    run.kill("qcg.pilotjob.batch")
    run.wait_for_output(f"Job {second} is RUNNING")
    gate.touch()
    assert run.wait(90) == 0, run.output
    assert f"Job {second} is RUNNING" in run.output
    assert set(run.states.values()) == {"SUCCEED"}
    assert [run.starts.count(f"before.{index}") for index in range(3)] == [1, 1, 1]
    assert run.chain_state == {"allocations": [first, second], "exit_code": 0}


@long_concurrent_test
def test_unfinished_jobs_continue_in_further_allocations_up_to_the_maximum(cluster: Cluster):
    gate = cluster.cwd / "gate"
    jobs = [
        recorded_job("quick", iteration=3),
        recorded_job("slow", f"until [ -e {gate} ]; do sleep 0.1; done", iteration=2),
    ]
    closing = ["--time-limit=20s", "--grace=1"]
    run = SubmittedRun(cluster, jobs, "--nodes=1", "--max-allocations=2", "--id=mine", *closing)
    assert run.wait(120) == 4, run.output
    first, second = run.chain_state["allocations"]
    assert f"Jobs are left; job {second} continues with them." in run.output
    assert f"Job {first} has ended; job {second} is next." in run.output
    assert "Jobs are left after allocation 2 of at most 2. To continue: `qcg-pm sbatch --resume " in run.output
    assert sorted(run.starts) == ["quick.0", "quick.1", "quick.2", *["slow.0"] * 2, *["slow.1"] * 2]
    gate.touch()
    done = submit(cluster, "--resume", ".", "--nodes=1", "--wait", "--time-limit=10m")
    assert "the run will be in " + str(cluster.cwd / ".qcgpjm-service-mine") in done.stderr
    assert set(run.states.values()) == {"SUCCEED"}
    assert [run.starts.count(name) for name in ("quick.0", "slow.0")] == [1, 3]


@concurrent_test
def test_no_further_allocation_follows_one_without_progress(cluster: Cluster):
    # Without --time, the length of the allocation is not known before it starts.
    options = ["--nodes=1", "--max-allocations=3", "--", "--time=5"]
    run = SubmittedRun(cluster, [recorded_job("long", wt="2h")], *options)
    assert run.wait() == 4, run.output
    assert "No job was started or ended in this allocation, and the next one would be like it" in run.output
    assert "'long' has the longest wall time (wt), 7200 s" in run.output
    assert not run.starts
    wait_for(lambda: not queue(cluster), what="the next allocation to be cancelled")
    assert len(run.chain_state["allocations"]) == 1


@concurrent_test
def test_sbatch_wait_submits_the_next_allocation_if_nodes_must_not_submit_jobs(cluster: Cluster):
    wrapper = cluster.cwd / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(
        "#!/bin/bash\n"
        "case $(hostname) in n?) echo sbatch: error: Access denied from this host >&2; exit 1;; esac\n"
        f'exec {shutil.which("sbatch")} "$@"\n'
    )
    wrapper.chmod(0o755)
    jobs = [recorded_job("quick", iteration=2), recorded_job("twice", "[ $(grep -c twice starts) = 2 ] || sleep 600")]
    path = {"PATH": f"{wrapper.parent}:{cluster.environ['PATH']}"}
    run = SubmittedRun(cluster, jobs, "--nodes=1", "--max-allocations=2", "--time-limit=20s", "--grace=2", env=path)
    assert run.wait(120) == 0, run.output
    assert (
        "Allocation 2 of at most 2 could not be asked for: sbatch refused: sbatch: error: Access denied" in run.output
    )
    assert "was submitted from here" in run.output
    assert len(run.chain_state["allocations"]) == 2
    assert [run.starts.count("quick.0"), len(run.starts)] == [1, 4]


@concurrent_test
def test_a_requeued_batch_job_continues_its_run(cluster: Cluster):
    gate = cluster.cwd / "gate"
    jobs = [
        recorded_job("quick", iteration=3),
        recorded_job("slow", f"until [ -e {gate} ]; do sleep 0.1; done", after=["quick"]),
    ]
    run = SubmittedRun(cluster, jobs, "--nodes=1", "--max-allocations=2")
    wait_for(lambda: len(run.starts) == 4, 60, run.output)
    first, second = run.chain_state["allocations"]
    cluster.run("scontrol", "requeue", first)
    run.wait_for_output("Slurm has queued this job again; it continues the run when it starts.")
    gate.touch()
    wait_for(lambda: f"{first} PENDING" in queue(cluster))
    cluster.run("scontrol", "update", f"JobId={first}", "StartTime=now")
    assert run.wait(90) == 0, run.output
    assert [run.starts.count(f"quick.{index}") for index in range(3)] == [1, 1, 1]
    assert set(run.states.values()) == {"SUCCEED"}
    wait_for(lambda: not queue(cluster), what="the next allocation to be cancelled")
    assert run.chain_state == {"allocations": [first], "exit_code": 0}
    assert f"Job {second} is" not in run.output.replace(f"Job {second} is allocation 2", "")


@concurrent_test
def test_no_further_allocation_follows_a_cancelled_batch_job(cluster: Cluster):
    run = SubmittedRun(cluster, [recorded_job("endless", "sleep 600", iteration=4)], "--max-allocations=3", "--nodes=1")
    run.wait_for_starts_of(*(f"endless.{index}" for index in range(4)))
    first, second = run.chain_state["allocations"]
    cluster.run("scancel", first)
    assert run.wait() == 4, run.output
    wait_for(lambda: not queue(cluster))
    assert "JobState=CANCELLED" in cluster.run("scontrol", "show", "job", second).stdout
    assert run.chain_state["cancelled"] == first
    assert len(run.starts) == 4


@concurrent_test
def test_no_further_allocation_follows_a_finish_request(cluster: Cluster):
    jobs = [recorded_job("endless", "sleep 600", iteration=4), recorded_job("waiting", iteration=2, numNodes=1)]
    run = SubmittedRun(cluster, jobs, "--max-allocations=3", "--nodes=1")
    run.wait_for_starts_of(*(f"endless.{index}" for index in range(4)))
    first, _ = run.chain_state["allocations"]
    cluster.node("n1").exec("qcg-pm", "finish")
    assert run.wait() == 4, run.output
    wait_for(lambda: not queue(cluster))
    assert run.chain_state == {"allocations": [first], "cancelled": first, "exit_code": 4}
    assert "The run was told to finish, and jobs are left. To continue: `qcg-pm sbatch --resume " in run.output
    assert set(run.starts) == {f"endless.{index}" for index in range(4)}
    assert submit(cluster, "--resume=.", "--wait", check=False).returncode == 1, "iterations were cancelled"
    assert {"waiting.0", "waiting.1"} <= set(run.starts)


def test_waiting_ends_when_a_pending_batch_job_is_cancelled(cluster: Cluster):
    run = SubmittedRun(cluster, [job("a", "true")], "--", "--hold")
    run.wait_for_output("PENDING (JobHeldUser)")
    cluster.run("scancel", "--user=root")
    assert run.wait() == 3, run.output
    assert "ended (CANCELLED) before the run did" in run.output


def test_ctrl_c_ends_the_waiting_but_not_the_batch_job(cluster: Cluster):
    gate = cluster.cwd / "gate"
    run = SubmittedRun(cluster, [recorded_job("a", f"until [ -e {gate} ]; do sleep 0.1; done")], "--nodes=1")
    wait_for(lambda: run.starts, 60, run.output)
    run.wait_for_output(" is RUNNING on n")  # by now, the command waits
    os.killpg(run._process.pid, signal.SIGINT)
    run.wait_for_output("interrupted; the job continues")
    run.wait()
    more = submit(cluster, "--resume=.", check=False)
    assert (more.returncode, more.stdout) == (2, "")
    assert re.search(r"Slurm job (\d+) still holds n\d for this run; wait for that, or `scancel \1` first", more.stderr)
    gate.touch()
    wait_for(lambda: run.chain_state.get("exit_code") == 0)


def test_jobs_that_can_never_run_are_reported_before_anything_is_submitted(cluster: Cluster):
    jobs = [job("wide", "true", numCores=9), job("gpu", "true", nodeCrs={"gpu": 1}), job("fits", "true", numCores=8)]
    write_requests(cluster.cwd / "jobs.json", jobs)
    done = submit(cluster, "jobs.json", "--nodes=2", check=False)
    assert done.returncode == 2
    assert "job 'wide' can never run" in done.stderr
    assert "job 'gpu' can never run" in done.stderr
    assert "jobs.json has 2 problems, checked against 8 cores on 2 nodes; nothing was submitted" in done.stderr
    assert submit(cluster, "jobs.json", "--nodes=3", "--gpus-per-node=1", "--", "--hold").returncode == 0
    assert len(list(cluster.cwd.glob(".qcgpjm-*"))) == 1


def test_an_error_of_sbatch_is_reported_and_no_files_are_left(cluster: Cluster):
    write_requests(cluster.cwd / "jobs.json", [job("a", "true")])
    done = submit(cluster, "jobs.json", "--partition=nowhere", check=False)
    assert done.returncode == 2
    assert "sbatch refused" in done.stderr
    assert "invalid partition specified: nowhere" in done.stderr
    assert not list(cluster.cwd.glob(".qcgpjm-*"))


def test_status_reports_a_batch_job_that_can_never_start(cluster: Cluster):
    write_requests(cluster.cwd / "jobs.json", [job("a", "true")])
    [job_id] = re.findall(r"\d+", submit(cluster, "jobs.json", "--nodes=9", "--time=5", "--id=mine").stdout)

    def status() -> str:
        return cluster.run("qcg-pm", "status", check=False).stderr

    wait_for(lambda: "It will not start unless that changes" in status())
    assert f"Run mine was submitted as Slurm job {job_id} (PENDING, Partition" in status()
    assert f"To give it up, `scancel {job_id}`" in status()


def test_the_printed_script_can_be_submitted_with_sbatch(cluster: Cluster):
    write_requests(cluster.cwd / "jobs.json", [recorded_job("a")])
    script = submit(cluster, "jobs.json", "--dry-run", "--id=mine", "--nodes=1").stdout
    assert not list(cluster.cwd.glob(".qcgpjm-*"))
    assert f"exec {sys.executable} -m qcg.pilotjob.batch" in script
    submitted = cluster.sbatch(script, env={"PATH": "/usr/bin:/bin"})
    assert submitted.wait() == 0
    assert "4 cores on 1 node" in submitted.output
    assert (cluster.cwd / "starts").read_text() == "a.${it}\n"
    assert (cluster.cwd / ".qcgpjm-service-mine").is_dir()


def test_a_run_works_inside_salloc_on_the_login_node(cluster: Cluster):
    where = job("where", "bash", "-c", "hostname; sleep 0.5", iteration=4, stdout="out.${it}")
    write_requests(cluster.cwd / "jobs.json", [where])
    done = cluster.salloc("qcg-pm", "run", "jobs.json", nodes=2, ntasks_per_node=2, no_kill=True, time=5)
    assert "4 cores on 2 nodes" in done.stdout
    assert sorted((cluster.cwd / f"out.{index}").read_text() for index in range(4)) == ["n1\n", "n1\n", "n2\n", "n2\n"]
