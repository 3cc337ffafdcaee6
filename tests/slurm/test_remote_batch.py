"""Remote hosts that run jobs through Slurm: the sub-commands of the far side over real ssh, on a real cluster."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.host.remote.far_side import Channel, channel, encode, launch, script, until
from tests.slurm.concurrent_tests import long_concurrent_test
from tests.slurm.remote_cluster import SlurmFarSide, described, execution, executions
from tests.support import processes
from tests.support.slurm_cluster import Cluster
from tests.support.tiers import per_tier

HOLD = {"--hold": ""}


@pytest.fixture
def far(cluster: Cluster) -> SlurmFarSide:
    far = SlurmFarSide(cluster)
    far.attach()
    return far


@pytest.fixture
def far_of(cluster: Cluster) -> SlurmFarSide:
    """The host of `opened`."""
    return SlurmFarSide(cluster)


@pytest.fixture
def opened(far_of: SlurmFarSide) -> Iterator[Channel]:
    """An open channel, which asks the queue only when it has to."""
    with open_channel(far_of) as opened:
        yield opened


@contextlib.contextmanager
def open_channel(far: SlurmFarSide) -> Iterator[Channel]:
    with channel(far) as opened:
        opened.init(batch=described(submit_poll_interval=300.0, poll_interval=300.0))
        opened.call("jobs-poll", acks={}, full=True)
        yield opened


def remote(name: str, **asks: Any) -> list[object]:
    """The remote part of a launch."""
    asked = [asks.get(field, 0) for field in ("nodes", "cores", "gpus", "memory")]
    return [f"job/1/{name}/01", "1", name, 1, [], [], asks.get("directives", {}), [*asked, None]]


def test_a_job_runs_on_a_compute_node_and_is_polled(far: SlurmFarSide):
    assert far.submit(script("1:1.1", "echo $SLURM_JOB_ID; hostname; pwd; exit 7", name="a")) == {"1:1.1": "accepted"}
    (ended,) = far.ended("1:1.1")
    _, exit_code, reason, message, pid, started, grant, usage = ended
    assert (exit_code, reason, message, grant) == (7, "exit", "", [["wizard", [0], []]])
    assert pid > 0
    assert started > 0
    assert usage[2] > 0, "peak memory"
    status = far.status("1/a/NN")
    job_id, node, directory = (far.log / "job/1/a/NN/job.out").read_text().split()
    assert (job_id, node) == (status["JOB_ID"], status["HOST"])
    assert directory == str(far.run_dir / "work/1/a")
    assert (status["BATCH_SYSTEM"], status["EXIT_CODE"]) == ("slurm", "7")
    assert far.wait_for_slurm("a", 60) == "FAILED"


def test_fifty_jobs_go_through_one_command_and_one_refused_job_harms_no_other(far: SlurmFarSide):
    launches = [script(f"1:{n}.1", execution(f"j{n}", n % 2), name=f"j{n}") for n in range(49)]
    launches.append(script("1:99.1", "true", name="bad", remote=remote("bad", directives={"--partition": "nope"})))
    assert set(far.submit(*launches).values()) == {"accepted"}
    ends = dict(zip((launch[0] for launch in launches), far.ended(*(launch[0] for launch in launches)), strict=True))
    assert [ends[f"1:{n}.1"][1:3] for n in range(49)] == [[n % 2, "exit"] for n in range(49)]
    assert ends["1:99.1"][2] == "unstartable"
    assert "Invalid partition name specified" in ends["1:99.1"][3]
    assert {executions(far, f"j{n}") for n in range(49)} == {1}


def test_one_query_of_the_queue_serves_all_jobs(far: SlurmFarSide, cluster: Cluster):
    far.submit(
        *[script(f"1:{n}.1", "sleep 60", name=f"j{n}", remote=remote(f"j{n}", directives=HOLD)) for n in range(8)]
    )
    before = cluster.calls()
    assert len(far.poll()["live"]) == 8
    looks = cluster.calls() - before
    assert looks["REQUEST_JOB_INFO"] + looks["REQUEST_JOB_INFO_SINGLE"] == 1


def test_directives_of_the_job_reach_slurm(far: SlurmFarSide, cluster: Cluster):
    part = remote(
        "a", directives={**HOLD, "--comment": 'two "words"', "-p": "main"}, nodes=2, cores=3, gpus=1, memory=100
    )
    far.submit(script("1:1.1", "true", name="a", remote=part, wall_time=3600.0))
    shown = cluster.run("scontrol", "show", "job", far.job_id("a")).stdout
    words = dict(re.findall(r"(\w+(?:/\w+)?)=(\S*)", shown))
    assert (words["NumNodes"], words["NumTasks"], words["TimeLimit"]) == ("2-2", "6", "01:01:00")
    assert (words["MinMemoryNode"], words["Requeue"]) == ("100M", "0")
    assert 'Comment=two "words"' in shown
    assert words["TresPerNode"].endswith("gpu:1")
    assert words["JobName"].endswith(".1_1.1")
    assert words["StdOut"] == f"{far.run_dir}/log.20180418T025047Z/job/1/a/01/job.out"


def test_whole_nodes_are_exclusive(far: SlurmFarSide, cluster: Cluster):
    far.submit(script("1:1.1", "true", name="a", remote=remote("a", directives=HOLD, nodes=2)))
    shown = cluster.run("scontrol", "show", "job", far.job_id("a")).stdout
    assert "OverSubscribe=NO" in shown
    assert "NumNodes=2" in shown


def test_jobs_see_the_gpus_that_slurm_has_chosen(far: SlurmFarSide):
    wait = "echo $CUDA_VISIBLE_DEVICES > ../gpu-$0; while [ ! -e ../gpu-1 ] || [ ! -e ../gpu-2 ]; do sleep 0.1; done"
    env = {"CUDA_VISIBLE_DEVICES": "0"}  # as the manager counts
    part = {"directives": {"-w": "n2"}, "gpus": 1, "cores": 1, "memory": 10}
    far.submit(
        *[
            launch(f"1:{n}.1", "/bin/sh", "-c", wait, str(n), name=f"j{n}", env=env, remote=remote(f"j{n}", **part))
            for n in (1, 2)
        ]
    )
    assert [end[1:3] for end in far.ended("1:1.1", "1:2.1")] == [[0, "exit"]] * 2
    assert sorted(far.path(f"gpu-{n}").read_text() for n in (1, 2)) == ["0\n", "1\n"]


def test_signals_reach_a_running_job(far: SlurmFarSide):
    handle = "trap 'echo heard > ../heard; exit 4' USR1; echo > ../up; while :; do sleep 0.1; done"
    far.submit(launch("1:1.1", "/bin/bash", "-c", handle, name="a"))
    until(far.path("up").exists, "the start of the job")
    far.call("jobs-kill", ids=["1:1.1"], how="signal", signal=signal.SIGUSR1.value)
    assert [end[1:3] for end in far.ended("1:1.1")] == [[4, "exit"]]
    assert far.path("heard").exists()


def test_waiting_and_running_jobs_are_killed(far: SlurmFarSide):
    far.submit(
        script("1:1.1", "trap 'echo ended; exit 1' TERM; echo > ../up; sleep 1000 & wait", name="runs"),
        script("1:2.1", execution("waits"), name="waits", remote=remote("waits", directives=HOLD)),
    )
    until(far.path("up").exists, "the start of the job")
    ids = ["1:1.1", "1:2.1"]
    assert far.call("jobs-kill", ids=ids, how="kill", reason="cancel", message="Enough.")["done"] == ids
    runs, waits = far.ended(*ids)
    assert [end[2:4] for end in (runs, waits)] == [["cancel", "Enough."]] * 2
    assert "ended\n" in (far.log / "job/1/runs/01/job.out").read_text()
    assert executions(far, "waits") == 0


def test_a_job_that_ended_between_two_polls_is_found(far: SlurmFarSide, cluster: Cluster):
    far.submit(script("1:1.1", execution("a", 5), name="a"))
    far.wait_for_slurm("a", 60)
    cluster.kill_controller()  # the ledger of the channel alone knew of the end
    again = SlurmFarSide(cluster, "n2")
    again.attach()
    assert [end[1:3] for end in again.ended("1:1.1")] == [[5, "exit"]]


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "waiting"])
def test_a_job_that_a_user_cancels_in_slurm_is_lost_with_that_cause(
    far: SlurmFarSide, cluster: Cluster, is_running: bool
):
    part = remote("a", directives={} if is_running else HOLD)
    far.submit(script("1:1.1", "echo > ../up; exec sleep 1000", name="a", remote=part))
    if is_running:
        until(far.path("up").exists, "the start of the job")
    cluster.run("scancel", far.job_id("a"))
    (ended,) = far.ended("1:1.1")
    assert ended[2] == "lost"
    assert ended[3].startswith("The job was cancelled in Slurm by a user or an administrator, not through this run")


def test_no_job_is_lost_while_the_controller_is_down(far: SlurmFarSide, cluster: Cluster):
    far.attach(timeout=5.0)
    far.submit(script("1:1.1", "while [ ! -e ../go ]; do sleep 0.1; done", name="a"))
    until(lambda: "STARTED" in far.status("1/a/01"), "the start of the job")
    cluster.run("scontrol", "shutdown", "slurmctld")
    until(lambda: cluster.run("scontrol", "ping", check=False).returncode, "the end of the controller")
    assert [live[0] for live in far.poll()["live"]] == ["1:1.1"]
    # A job that Slurm does not take now is submitted later.
    assert far.submit(script("1:2.1", execution("b"), name="b")) == {"1:2.1": "accepted"}
    far.path("go").write_text("")
    cluster.start_controller()
    assert [end[1:3] for end in far.ended("1:1.1", "1:2.1")] == [[0, "exit"], [0, "exit"]]
    assert executions(far, "b") == 1


@pytest.mark.sampled
def test_a_command_killed_while_it_submits_leads_to_one_execution_each(far: SlurmFarSide):
    seeded = random.Random(12)
    turns = per_tier(4, 40)
    names = {f"{turn}:{n}.1": f"t{turn}j{n}" for turn in range(1, turns + 1) for n in range(6)}
    for turn in range(1, turns + 1):
        launches = [script(id, execution(name), name=name) for id, name in names.items() if id.startswith(f"{turn}:")]
        kill_while_submitting(far, launches, seeded.uniform(0.05, 0.5))
        far.submit(*launches)
    assert {tuple(end[1:3]) for end in far.ended(*names)} == {(0, "exit")}
    assert [executions(far, name) for name in names.values()] == [1] * len(names)


def kill_while_submitting(far: SlurmFarSide, launches: list[list[object]], delay: float) -> None:
    """Kill the process on the host that submits, so many seconds after it has started."""
    with far.popen("jobs-submit") as process:
        assert process.stdin is not None
        process.stdin.write(encode(far.request("jobs-submit", launches=launches)))
        process.stdin.flush()
        submitter = until(lambda: far.command_on_host("jobs-submit"), "the command on the host")
        time.sleep(delay)  # a random moment
        processes.end({submitter})
        process.communicate()


@long_concurrent_test
def test_a_job_on_a_node_that_crashes_is_lost_with_that_cause(cluster: Cluster):
    far = SlurmFarSide(cluster)
    far.attach()
    part = remote("a", directives={"-w": "n3"})
    far.submit(script("1:1.1", "echo > ../up; exec sleep 1000", name="a", remote=part))
    until(far.path("up").exists, "the start of the job")
    cluster.node("n3").crash()
    assert far.wait_for_slurm("a", 120) == "NODE_FAIL"
    (ended,) = far.ended("1:1.1")
    assert ended[2:4] == ["lost", "A node of the job failed, says Slurm (state NODE_FAIL)."]


@long_concurrent_test
def test_a_job_that_slurm_ends_at_its_time_limit_has_exceeded_its_time(cluster: Cluster):
    far = SlurmFarSide(cluster)
    far.attach()
    part = remote("a", directives={"--time": "1"})
    far.submit(script("1:1.1", "exec sleep 1000", name="a", remote=part))
    assert far.wait_for_slurm("a", 240) == "TIMEOUT"
    (ended,) = far.ended("1:1.1")
    assert ended[2:4] == ["timeout", "Slurm ended the job at the time limit of the batch job (state TIMEOUT)."]


# -- over a channel ------------------------------------------------------------------------------------------------


def test_starts_and_ends_arrive_without_a_query_of_slurm(opened: Channel, far_of: SlurmFarSide, cluster: Cluster):
    opened.call(
        "jobs-submit", launches=[script("1:1.1", "while [ ! -e ../go ]; do sleep 0.05; done; exit 4", name="a")]
    )
    opened.until(lambda: [record for record in opened.records() if record[0] == "s"], "the start")
    before = cluster.calls()
    far_of.path("go").write_text("")
    opened.until(opened.ends, "the end")
    looks = cluster.calls() - before
    assert opened.ends()["1:1.1"][1:3] == [4, "exit"]
    assert looks["REQUEST_JOB_INFO"] + looks["REQUEST_JOB_INFO_SINGLE"] == 0


def test_kills_and_cancellations_arrive_over_the_channel(opened: Channel, far_of: SlurmFarSide, cluster: Cluster):
    wait = "echo > ../up-$0; exec sleep 1000"
    launches = [launch(f"1:{n}.1", "/bin/sh", "-c", wait, str(n), name=f"j{n}") for n in (1, 2)]
    launches.append(script("1:3.1", "true", name="j3", remote=remote("j3", directives=HOLD)))
    opened.call("jobs-submit", launches=launches)
    for n in (1, 2):
        until(far_of.path(f"up-{n}").exists, "the start of the job")
    opened.call("jobs-kill", ids=["1:1.1", "1:3.1"], how="kill", reason="cancel", message="")
    cluster.run("scancel", far_of.job_id("j2"))
    opened.until(lambda: len(opened.ends()) == 3, "all ends")
    ends = opened.ends()
    assert [ends[f"1:{n}.1"][2] for n in (1, 2, 3)] == ["cancel", "lost", "cancel"]
    assert "cancelled in Slurm" in ends["1:2.1"][3]


def test_a_channel_that_is_cut_while_it_submits_loses_nothing(cluster: Cluster):
    far = SlurmFarSide(cluster)
    launches = [script(f"1:{n}.1", execution(f"j{n}"), name=f"j{n}") for n in range(10)]
    with open_channel(far) as first:
        first.call("jobs-submit", launches=launches)
    with open_channel(far) as second:
        second.call("jobs-submit", launches=launches)
        opened = second
        opened.until(lambda: len(set(opened.ends()) | set(far.ends_on_disk())) == 10, "all ends")
    ends = far.ends_on_disk()
    assert {id: end[1:4] for id, end in ends.items()} == {f"1:{n}.1": [0, "exit", ""] for n in range(10)}
    assert [executions(far, f"j{n}") for n in range(10)] == [1] * 10
