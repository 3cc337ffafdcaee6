"""`qcg-pm sbatch`: a run gets allocations of its own, one after another while jobs are left."""

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

from tests.slurm.allocated import left_in
from tests.slurm.stories import long_story, story
from tests.support.pilot import job, write_requests
from tests.support.processes import Process
from tests.support.slurm_cluster import Cluster, Done, kill_command
from tests.support.waiting import wait_for


def stamped(name: str, line: str = "true", **more: Any) -> dict[str, Any]:
    """A job that notes each start of it in the file `starts`."""
    return job(name, "bash", "-c", f"echo {name}.$1 >> starts; {line}", "-", "${it}", **more)


class Submitted:
    """`qcg-pm sbatch --wait`, under way."""

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
        self.output = self.wd / "told"
        command = ["qcg-pm", "sbatch", file, "--wait", "--report-format", "json", *options]
        with self.output.open("w") as out:
            self._process = cluster.start(*command, stdout=out, stderr=subprocess.STDOUT, env=env)

    @property
    def told(self) -> str:
        return self.output.read_text()

    @property
    def starts(self) -> list[str]:
        path = self.wd / "starts"
        return path.read_text().split() if path.exists() else []

    @property
    def books(self) -> dict[str, Any]:
        [path] = self.wd.glob(".qcgpjm-sbatch-*/books.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def wait_for_starts_of(self, *names: str) -> None:
        wait_for(lambda: set(names) <= set(self.starts), 60, f"the starts of {', '.join(names)}: {self.told}")

    def wait_for_words(self, words: str) -> None:
        wait_for(lambda: words in self.told, 60, f"{words!r} in {self.told}")

    def processes(self, module: str) -> list[Process]:
        """Those of the first node that run this module."""
        return [found for found in self.cluster.node("n1").processes() if f" -m {module} " in f"{found} "]

    def kill(self, module: str) -> None:
        # The one that was there first: a child has the same command line until it has become another program.
        process = min(wait_for(lambda: self.processes(module)), key=lambda one: one.started)
        os.kill(process.pid, signal.SIGKILL)

    def wait(self, timeout: float = 60) -> int:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            kill_command(self._process)
            pytest.fail(f"qcg-pm sbatch --wait did not end; it told\n{self.told}", pytrace=False)

    @property
    def states(self) -> dict[str, str]:
        return left_in(self.wd).states


def submit(cluster: Cluster, *arguments: str | Path, **options: Any) -> Done:
    return cluster.run("qcg-pm", "sbatch", *arguments, **options)


def queue(cluster: Cluster) -> str:
    return cluster.run("squeue", "--noheader", "--format=%i %T").stdout


def test_a_file_runs_in_an_allocation_of_the_size_asked_for_whatever_its_path_is(cluster: Cluster):
    cluster.cwd = cluster.cwd / 'it\'s a "dir" $HOME'
    cluster.cwd.mkdir()
    line = "hostname; echo $1; until [ -e go ]; do sleep 0.1; done"
    where = job("where", "bash", "-c", line, "-", "a b'c", iteration=6, stdout="out.${it}")
    options = ["--nodes=3", "--cores=2", "--time=10m", "--job-name", 'a "b" c', "--", "--comment", "x 'y'"]
    run = Submitted(cluster, [where, job("bad", "false", after=["where"])], *options, file="my jobs.json")
    run.wait_for_words(" is RUNNING on n[1-3].")
    (cluster.cwd / "go").touch()
    assert run.wait() == 1, run.told  # bad is
    hosts = [(cluster.cwd / f"out.{index}").read_text() for index in range(6)]
    assert sorted(hosts) == [f"{node}\na b'c\n" for node in ("n1", "n1", "n2", "n2", "n3", "n3")]
    [job_id] = re.findall(r"^Submitted batch job (\d+)$", run.told, re.MULTILINE)
    assert "FAILED bad: exit code 1" in run.told
    assert "6 cores on 3 nodes" in run.told
    assert f"Job {job_id} is RUNNING on n[1-3]." in run.told
    shown = cluster.run("scontrol", "show", "job", job_id).stdout
    for fact in ('JobName=a "b" c', "TimeLimit=00:10:00", "Comment=x 'y'", f"WorkDir={cluster.cwd}", "Requeue=1"):
        assert fact in shown
    [script] = cluster.cwd.glob(".qcgpjm-sbatch-*/batch.sh")
    assert str(script) in run.told
    assert (script.stat().st_mode & 0o777, script.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert run.states["bad"] == "FAILED"


@story
def test_without_a_size_whole_nodes_are_taken_and_the_next_allocation_is_given_back(cluster: Cluster):
    run = Submitted(cluster, [job("all", "true", numNodes=2, numCores=4)], "--nodes=2", "--max-allocations=3")
    assert run.wait() == 0, run.told
    assert "8 cores on 2 nodes" in run.told
    assert "is allocation 2 of at most 3" in run.told
    wait_for(lambda: not queue(cluster))
    [first] = run.books["allocations"]
    assert f"Submitted batch job {first}" in run.told


@story
def test_a_manager_that_is_killed_is_followed_by_another_in_the_same_allocation(cluster: Cluster):
    gate = cluster.cwd / "gate"
    jobs = [stamped("many", f"until [ -e {gate} ]; do sleep 0.1; done", iteration=6)]
    run = Submitted(cluster, jobs, "--nodes=1", "--cores=4")
    run.wait_for_starts_of("many.3")
    run.kill("qcg.pilotjob.cli")
    run.wait_for_words("The manager was ended by SIGKILL; the run goes on with another one.")
    gate.touch()
    assert run.wait() == 0, run.told
    assert sorted(run.starts) == [f"many.{index}" for index in range(6)]
    assert set(run.states.values()) == {"SUCCEED"}
    assert len(run.books["allocations"]) == 1


@story
def test_an_allocation_that_dies_with_all_that_is_in_it_is_followed_by_the_next(cluster: Cluster):
    gate = cluster.cwd / "gate"
    # Not to end before the agent does, which would look like an end of their own.
    hanging = f"trap '' TERM; touch armed.$1; until [ -e {gate} ]; do sleep 0.1; done"
    jobs = [stamped("before", iteration=3), stamped("hanging", hanging, after=["before"], iteration=2)]
    run = Submitted(cluster, jobs, "--nodes=2", "--max-allocations=2", "--on-lost=rerun")
    wait_for(lambda: len(list(cluster.cwd.glob("armed.*"))) == 2, what=f"both that hang: {run.told}")
    first, second = run.books["allocations"]
    assert queue(cluster).splitlines().count(f"{second} PENDING") == 1
    run.kill("qcg.pilotjob.batch")
    run.wait_for_words(f"Job {second} is RUNNING")
    gate.touch()
    assert run.wait(90) == 0, run.told
    assert f"Job {second} is RUNNING" in run.told
    assert set(run.states.values()) == {"SUCCEED"}
    assert [run.starts.count(f"before.{index}") for index in range(3)] == [1, 1, 1]
    assert run.books == {"allocations": [first, second], "exit_code": 0}


@long_story
def test_jobs_that_are_left_go_on_in_the_next_allocation_until_no_more_is_allowed(cluster: Cluster):
    gate = cluster.cwd / "gate"
    jobs = [stamped("quick", iteration=3), stamped("slow", f"until [ -e {gate} ]; do sleep 0.1; done", iteration=2)]
    closing = ["--time-limit=20s", "--grace=1"]
    run = Submitted(cluster, jobs, "--nodes=1", "--max-allocations=2", "--id=mine", *closing)
    assert run.wait(120) == 4, run.told
    first, second = run.books["allocations"]
    assert f"Jobs are left; job {second} goes on with them." in run.told
    assert f"Job {first} has ended; job {second} is next." in run.told
    assert "Jobs are left after allocation 2 of at most 2. To go on: `qcg-pm sbatch --resume " in run.told
    assert sorted(run.starts) == ["quick.0", "quick.1", "quick.2", *["slow.0"] * 2, *["slow.1"] * 2]
    gate.touch()
    done = submit(cluster, "--resume", ".", "--nodes=1", "--wait", "--time-limit=10m")
    assert "the run will be in " + str(cluster.cwd / ".qcgpjm-service-mine") in done.stderr
    assert set(run.states.values()) == {"SUCCEED"}
    assert [run.starts.count(name) for name in ("quick.0", "slow.0")] == [1, 3]


@story
def test_an_allocation_in_which_nothing_happens_is_not_followed_by_another(cluster: Cluster):
    # Without --time it is not known before how long the allocation will be.
    options = ["--nodes=1", "--max-allocations=3", "--", "--time=5"]
    run = Submitted(cluster, [stamped("long", wt="2h")], *options)
    assert run.wait() == 4, run.told
    assert "No job was started or ended in this allocation, and the next one would be like it" in run.told
    assert "'long' has the longest wall time (wt), 7200 s" in run.told
    assert not run.starts
    wait_for(lambda: not queue(cluster), what="the next allocation to be given back")
    assert len(run.books["allocations"]) == 1


@story
def test_where_nodes_may_not_submit_jobs_whoever_waits_does(cluster: Cluster):
    wrapper = cluster.cwd / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(
        "#!/bin/bash\n"
        "case $(hostname) in n?) echo sbatch: error: Access denied from this host >&2; exit 1;; esac\n"
        f'exec {shutil.which("sbatch")} "$@"\n'
    )
    wrapper.chmod(0o755)
    jobs = [stamped("quick", iteration=2), stamped("twice", "[ $(grep -c twice starts) = 2 ] || sleep 600")]
    path = {"PATH": f"{wrapper.parent}:{cluster.environ['PATH']}"}
    run = Submitted(cluster, jobs, "--nodes=1", "--max-allocations=2", "--time-limit=20s", "--grace=2", env=path)
    assert run.wait(120) == 0, run.told
    assert "Allocation 2 of at most 2 could not be asked for: sbatch refused: sbatch: error: Access denied" in run.told
    assert "was submitted from here" in run.told
    assert len(run.books["allocations"]) == 2
    assert [run.starts.count("quick.0"), len(run.starts)] == [1, 4]


@story
def test_a_job_that_slurm_queues_again_goes_on_with_its_run(cluster: Cluster):
    gate = cluster.cwd / "gate"
    jobs = [stamped("quick", iteration=3), stamped("slow", f"until [ -e {gate} ]; do sleep 0.1; done", after=["quick"])]
    run = Submitted(cluster, jobs, "--nodes=1", "--max-allocations=2")
    wait_for(lambda: len(run.starts) == 4, 60, run.told)
    first, second = run.books["allocations"]
    cluster.run("scontrol", "requeue", first)
    run.wait_for_words("Slurm has queued this job again; it goes on with the run when it starts.")
    gate.touch()
    wait_for(lambda: f"{first} PENDING" in queue(cluster))
    cluster.run("scontrol", "update", f"JobId={first}", "StartTime=now")
    assert run.wait(90) == 0, run.told
    assert [run.starts.count(f"quick.{index}") for index in range(3)] == [1, 1, 1]
    assert set(run.states.values()) == {"SUCCEED"}
    wait_for(lambda: not queue(cluster), what="the next allocation to be given back")
    assert run.books == {"allocations": [first], "exit_code": 0}
    assert f"Job {second} is" not in run.told.replace(f"Job {second} is allocation 2", "")


@story
def test_a_job_that_its_user_cancels_is_not_followed_by_another(cluster: Cluster):
    run = Submitted(cluster, [stamped("endless", "sleep 600", iteration=4)], "--max-allocations=3", "--nodes=1")
    run.wait_for_starts_of(*(f"endless.{index}" for index in range(4)))
    first, second = run.books["allocations"]
    cluster.run("scancel", first)
    assert run.wait() == 4, run.told
    wait_for(lambda: not queue(cluster))
    assert "JobState=CANCELLED" in cluster.run("scontrol", "show", "job", second).stdout
    assert run.books["cancelled"] == first
    assert len(run.starts) == 4


@story
def test_a_run_that_is_told_to_finish_is_not_followed_by_another_allocation(cluster: Cluster):
    jobs = [stamped("endless", "sleep 600", iteration=4), stamped("waiting", iteration=2, numNodes=1)]
    run = Submitted(cluster, jobs, "--max-allocations=3", "--nodes=1")
    run.wait_for_starts_of(*(f"endless.{index}" for index in range(4)))
    first, _ = run.books["allocations"]
    cluster.node("n1").exec("qcg-pm", "finish")
    assert run.wait() == 4, run.told
    wait_for(lambda: not queue(cluster))
    assert run.books == {"allocations": [first], "cancelled": first, "exit_code": 4}
    assert "The run was told to finish, and jobs are left. To go on: `qcg-pm sbatch --resume " in run.told
    assert set(run.starts) == {f"endless.{index}" for index in range(4)}
    assert submit(cluster, "--resume=.", "--wait", check=False).returncode == 1, "iterations were cancelled"
    assert {"waiting.0", "waiting.1"} <= set(run.starts)


def test_a_job_that_is_cancelled_before_it_begins_ends_the_waiting(cluster: Cluster):
    run = Submitted(cluster, [job("a", "true")], "--", "--hold")
    run.wait_for_words("PENDING (JobHeldUser)")
    cluster.run("scancel", "--user=root")
    assert run.wait() == 3, run.told
    assert "ended (CANCELLED) before the run did" in run.told


def test_ctrl_c_ends_the_waiting_and_not_the_job(cluster: Cluster):
    gate = cluster.cwd / "gate"
    run = Submitted(cluster, [stamped("a", f"until [ -e {gate} ]; do sleep 0.1; done")], "--nodes=1")
    wait_for(lambda: run.starts, 60, run.told)
    run.wait_for_words(" is RUNNING on n")  # it was submitted a while ago, and is waited for by now
    os.killpg(run._process.pid, signal.SIGINT)
    run.wait_for_words("interrupted; the job goes on")
    run.wait()
    more = submit(cluster, "--resume=.", check=False)
    assert (more.returncode, more.stdout) == (2, "")
    assert re.search(r"Slurm job (\d+) still holds n\d for this run; wait for that, or `scancel \1` first", more.stderr)
    gate.touch()
    wait_for(lambda: run.books.get("exit_code") == 0)


def test_what_could_never_run_is_told_before_anything_is_submitted(cluster: Cluster):
    jobs = [job("wide", "true", numCores=9), job("gpu", "true", nodeCrs={"gpu": 1}), job("fits", "true", numCores=8)]
    write_requests(cluster.cwd / "jobs.json", jobs)
    done = submit(cluster, "jobs.json", "--nodes=2", check=False)
    assert done.returncode == 2
    assert "job 'wide' can never run" in done.stderr
    assert "job 'gpu' can never run" in done.stderr
    assert "jobs.json has 2 problems, checked against 8 cores on 2 nodes; nothing was submitted" in done.stderr
    assert submit(cluster, "jobs.json", "--nodes=3", "--gpus-per-node=1", "--", "--hold").returncode == 0
    assert len(list(cluster.cwd.glob(".qcgpjm-*"))) == 1


def test_what_sbatch_says_against_it_is_told_and_nothing_is_left(cluster: Cluster):
    write_requests(cluster.cwd / "jobs.json", [job("a", "true")])
    done = submit(cluster, "jobs.json", "--partition=nowhere", check=False)
    assert done.returncode == 2
    assert "sbatch refused" in done.stderr
    assert "invalid partition specified: nowhere" in done.stderr
    assert not list(cluster.cwd.glob(".qcgpjm-*"))


def test_a_job_that_slurm_can_never_start_is_told_of(cluster: Cluster):
    write_requests(cluster.cwd / "jobs.json", [job("a", "true")])
    [job_id] = re.findall(r"\d+", submit(cluster, "jobs.json", "--nodes=9", "--time=5", "--id=mine").stdout)

    def told() -> str:
        return cluster.run("qcg-pm", "status", check=False).stderr

    wait_for(lambda: "It will not start unless that changes" in told())
    assert f"Run mine was submitted as Slurm job {job_id} (PENDING, Partition" in told()
    assert f"To give it up, `scancel {job_id}`" in told()


def test_the_script_that_is_printed_can_be_submitted_by_hand(cluster: Cluster):
    write_requests(cluster.cwd / "jobs.json", [stamped("a")])
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
