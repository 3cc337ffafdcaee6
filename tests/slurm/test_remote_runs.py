"""Whole runs with a remote host that runs its jobs through Slurm. The manager is on the login node, not in Slurm."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.allocation_run import AllocationRun
from tests.support.pilot import job, write_requests
from tests.support.slurm_cluster import Cluster
from tests.support.tiers import per_tier
from tests.support.waiting import wait_for

CHANNELS = ("serve", "one-shot")


def configure(cluster: Cluster, channel: str = "serve", **keys: Any) -> Path:
    """hosts.toml with the cluster as a remote host."""
    keys = {"address": "remote-n1", "batch": "slurm", "channel": channel, **keys}
    keys = {"directory": str(cluster.cwd / "far"), "submit_poll_interval": 1.0, "poll_interval": 1.0, **keys}
    lines = [f"{name} = {json.dumps(value)}" for name, value in keys.items() if not isinstance(value, dict)]
    for name, table in keys.items():
        if isinstance(table, dict):
            lines += [
                f"[cluster.{name}]",
                *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()),
            ]
    path = cluster.cwd / "hosts.toml"
    path.write_text("\n".join(["[cluster]", *lines, ""]))
    return path


def command(cluster: Cluster, *words: str) -> list[str]:
    return ["qcg-pm", "run", *words, "--id=r", "--hosts", str(cluster.cwd / "hosts.toml"), "--nodes=2"]


def remote(name: str, script: str, **keys: Any) -> dict[str, Any]:
    return {**job(name, script=script), "remote": {"host": "cluster", **keys.pop("remote", {})}, **keys}


def run(cluster: Cluster, *jobs: dict[str, Any], check: bool = True) -> subprocess.CompletedProcess[str]:
    write_requests(cluster.cwd / "jobs.json", list(jobs))
    return cluster.run(*command(cluster, "jobs.json"), timeout=180, check=check)


def far_directory(cluster: Cluster) -> Path:
    return cluster.cwd / "far" / "r"


def executions(cluster: Cluster, name: str) -> int:
    return sum(len(path.read_text().splitlines()) for path in far_directory(cluster).rglob(f"count-{name}"))


@pytest.mark.parametrize("channel", CHANNELS)
def test_remote_and_local_jobs_of_one_run_depend_on_each_other(cluster: Cluster, channel: str):
    configure(cluster, channel, directives={"--comment": "of the host"})
    show = "echo $SLURM_JOB_ID; scontrol show job $SLURM_JOB_ID | grep -o 'Comment=.*'"
    done = run(
        cluster,
        job("first", script="echo local > first.out"),
        remote("second", show, dependencies={"after": ["first"]}),
        job("third", script="touch third", dependencies={"after": ["second"]}),
    )
    assert (cluster.cwd / "third").exists(), done.stderr
    output = (far_directory(cluster) / "log/job/1/second/NN/job.out").read_text()
    assert output.split()[0].isdecimal()
    assert "Comment=of the host" in output


@pytest.mark.parametrize("channel", CHANNELS)
def test_jobs_of_an_allocation_and_of_a_remote_host_depend_on_each_other(cluster: Cluster, channel: str):
    """One request file: the manager is in the batch job, and the host runs jobs in the background."""
    keys = {"address": "remote-n4", "channel": channel, "directory": str(cluster.cwd / "far"), "poll_interval": 1}
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    (cluster.cwd / "hosts.toml").write_text("\n".join(["[far]", *lines, ""]))
    jobs = [
        job("first", "bash", "-c", "hostname > first.out"),
        {
            **job("second", "bash", "-c", "cat ../../../../../first.out; hostname", after=["first"]),
            "remote": {"host": "far"},
        },
        job("third", "bash", "-c", "hostname > third.out", after=["second"]),
    ]
    run = AllocationRun(cluster, jobs, "--hosts hosts.toml --id r", nodes=2, nodelist="n[1-2]").wait()
    assert run.states == dict.fromkeys(["first", "second", "third"], "SUCCEED"), run.done.stdout
    near = [(cluster.cwd / name).read_text() for name in ("first.out", "third.out")]
    assert set(near) <= {"n1\n", "n2\n"}
    far = (far_directory(cluster) / "log/job/1/second/NN/job.out").read_text()
    assert far == f"{near[0]}n4\n"


@pytest.mark.parametrize("channel", CHANNELS)
def test_an_iterated_job_of_fifty_runs_through_slurm(cluster: Cluster, channel: str):
    configure(cluster, channel)
    run(cluster, remote("many", "echo x >> ../../count-many", iteration={"stop": 50}))
    assert executions(cluster, "many") == 50


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_job_cancelled_in_slurm_has_failed_with_that_cause(cluster: Cluster, channel: str):
    configure(cluster, channel)
    done = run(cluster, remote("a", "scancel $SLURM_JOB_ID; sleep 1000"), check=False)
    assert done.returncode == 1
    report = (cluster.cwd / "jobs.report").read_text()
    assert "cancelled in Slurm by a user or an administrator" in report


@pytest.mark.parametrize("channel", CHANNELS)
def test_users_cancel_waiting_and_running_jobs(cluster: Cluster, channel: str):
    configure(cluster, channel)
    held = remote("held", "true", remote={"directives": {"--hold": ""}})
    write_requests(cluster.cwd / "jobs.json", [remote("runs", "touch ../../up; exec sleep 1000"), held])
    manager = cluster.start(*command(cluster, "jobs.json"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for((far_directory(cluster) / "work/up").exists, 60, "the start of the job")
    cluster.run("qcg-pm", "cancel", "runs", "held")
    assert manager.wait(60) == 1
    report = (cluster.cwd / "jobs.report").read_text()
    assert "runs (CANCELED)" in report
    assert "held (CANCELED)" in report
    assert not cluster.run("squeue", "--noheader").stdout


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_manager_killed_while_jobs_run_and_wait_finds_their_results(cluster: Cluster, channel: str):
    configure(cluster, channel)
    wait = f"echo x >> ../count-a; while [ ! -e {cluster.cwd}/go ]; do sleep 0.1; done; exit 3"
    write_requests(cluster.cwd / "jobs.json", [remote("a", wait), remote("b", "echo x >> ../count-b")])
    manager = cluster.start(*command(cluster, "jobs.json"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: executions(cluster, "a") == 1, 60, "the start of the job")
    contact = json.loads((cluster.cwd / ".qcgpjm-service-r/contact.json").read_text())
    cluster.run("kill", f"-{signal.SIGKILL.value}", str(contact["pid"]))
    manager.wait(30)
    (cluster.cwd / "go").touch()
    wait_for(lambda: _is_over(cluster, "a"), 60, "the end of the job, while nobody looks")
    done = cluster.run("qcg-pm", "run", "--resume", ".", "--hosts", "hosts.toml", timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    report = (cluster.cwd / "jobs.report").read_text()
    assert "b (SUCCEED)" in report
    assert "a (FAILED)" in report
    assert "exit_code: 3" in report
    assert (executions(cluster, "a"), executions(cluster, "b")) == (1, 1)


@pytest.mark.sampled
@pytest.mark.parametrize("channel", CHANNELS)
def test_a_manager_killed_in_the_submit_window_leads_to_one_execution_each(cluster: Cluster, channel: str):
    configure(cluster, channel)
    count = per_tier(20, 200)
    write_requests(
        cluster.cwd / "jobs.json", [remote("many", "echo x >> ../../count-${it}", iteration={"stop": count})]
    )
    words = command(cluster, "jobs.json")
    seeded = random.Random(channel)
    for _ in range(per_tier(3, 30)):
        manager = cluster.start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for((cluster.cwd / ".qcgpjm-service-r/contact.json").exists, 60, "the manager")
        time.sleep(seeded.uniform(0.3, 2.0))  # a random moment
        os.killpg(manager.pid, signal.SIGKILL)
        manager.wait(30)
        words = ["qcg-pm", "run", "--resume", ".", "--hosts", "hosts.toml"]
    done = cluster.run(*words, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert [executions(cluster, str(index)) for index in range(count)] == [1] * count


def _is_over(cluster: Cluster, name: str) -> bool:
    status = far_directory(cluster) / "log/job/1" / name / "NN/job.status"
    return "ENDED=" in status.read_text()


def test_no_process_of_the_run_stays_on_the_host(cluster: Cluster):
    configure(cluster)
    run(cluster, remote("a", "true"))
    assert not [process for process in cluster.node("n1").processes() if "pyz" in str(process)]
    assert os.listdir(far_directory(cluster))
