"""Failures of nodes, links, agents and managers during a run: no job is lost, and none runs twice."""

from __future__ import annotations

import time

from qcg.pilotjob.agent.lease import ANSWER_TIMEOUT
from qcg.pilotjob.executors.liveness import LivenessTimes
from tests.slurm.allocation_run import AllocationRun, JobTraces, waiting_jobs
from tests.slurm.concurrent_tests import concurrent_test, long_concurrent_test
from tests.support.slurm_cluster import Cluster
from tests.support.waiting import wait_for


def running(run: AllocationRun, count: int) -> JobTraces:
    """Wait until this number of jobs runs, and return their traces."""
    wait_for(lambda: len(JobTraces(run.wd).spans) >= count, what=f"{count} running jobs")
    return JobTraces(run.wd)


def go(run: AllocationRun) -> None:
    (run.wd / "go").touch()


def wait_until_queue_is_empty(cluster: Cluster) -> None:
    """Wait before nodes are rebooted for the next test: a step without its `srun` takes seconds to end."""
    wait_for(lambda: not cluster.run("squeue", "-h").stdout.strip(), 60, "the end of the allocation")


@long_concurrent_test
def test_jobs_of_a_crashed_node_fail_and_the_run_continues_on_the_others(cluster: Cluster):
    run = AllocationRun(cluster, [waiting_jobs("a", 20)], "--node-timeout 20")
    before = running(run, 16)
    cluster.node("n3").crash()
    crashed = time.monotonic()
    run.wait_for_log("the agent of n3 has been silent")
    assert time.monotonic() - crashed < 15
    run.wait_for_log("n3: node lost")
    go(run)
    done = run.wait()
    assert done.done.returncode == 1
    failed = {name for name, state in done.states.items() if state == "FAILED"} - {"a"}
    assert failed == before.on("n3")
    assert len(failed) == 4
    assert all("node lost" in done.report[name]["messages"] for name in failed)
    assert JobTraces(run.wd).on("n3") == failed
    assert sorted(done.states.values()).count("SUCCEED") == 16


@concurrent_test
def test_a_rebooted_node_gets_another_agent_and_other_nodes_are_not_affected(cluster: Cluster):
    run = AllocationRun(cluster, [waiting_jobs("a", 6)], "--on-lost rerun", nodes=3, ntasks_per_node=2)
    before = running(run, 6)
    node = cluster.node("n3")
    node.crash()
    crashed = time.time()
    node.boot()
    # An `srun` that is called before the node is up again takes a while to fail.
    wait_for(lambda: run.log.count("agent n3 connected") > 1, 90, "another agent on n3")
    # Pids start again with the node: the second attempt of a job may write to the file of the first.
    wait_for(lambda: before.on("n3") <= jobs_seen_since(JobTraces(run.wd), "n3", crashed), what="second starts")
    go(run)
    done = run.wait()
    assert done.done.returncode == 0, run.log
    after = JobTraces(run.wd)
    assert all(len(after.spans[name]) == 1 for name in before.spans.keys() - before.on("n3"))
    assert set(after.ends.values()) == {1}
    assert len(after.ends) == 6
    wait_until_queue_is_empty(cluster)


def jobs_seen_since(lives: JobTraces, host: str, moment: float) -> set[str]:
    return {name for name, spans in lives.spans.items() if any(on == host and last > moment for on, _, last in spans)}


@long_concurrent_test
def test_a_suspended_allocation_resumes_without_lost_jobs(cluster: Cluster):
    run = AllocationRun(cluster, [waiting_jobs("a", 4)], "--node-timeout 20", nodes=2, ntasks_per_node=2)
    running(run, 4)
    cluster.run("scontrol", "suspend", str(run.job.id))
    time.sleep(LivenessTimes(20).fence + 2)  # longer than a cut-off node waits before it kills its jobs
    cluster.run("scontrol", "resume", str(run.job.id))
    time.sleep(ANSWER_TIMEOUT + 2)  # long enough for killed jobs to be dead
    go(run)
    done = run.wait()
    assert done.done.returncode == 0, run.log
    assert all(len(spans) == 1 for spans in JobTraces(run.wd).spans.values())


@concurrent_test
def test_every_job_survives_a_network_cut_of_ten_seconds(cluster: Cluster):
    run = AllocationRun(cluster, [waiting_jobs("a", 20)], "--on-lost rerun")
    before = running(run, 16)
    connected = run.log.count("agent n3 connected")
    node = cluster.node("n3")
    node.cut()
    time.sleep(10)
    node.heal()
    wait_for(lambda: run.log.count("agent n3 connected") > connected, what=f"n3 to come back:\n{run.log}")
    go(run)
    done = run.wait()
    assert done.done.returncode == 0, run.log
    after = JobTraces(run.wd)
    assert all(after.spans[name] != [] and len(after.spans[name]) == 1 for name in before.spans)
    assert set(after.ends.values()) == {1}
    assert len(after.ends) == 20
    assert "lost" not in run.log
    wait_until_queue_is_empty(cluster)


@long_concurrent_test
def test_jobs_on_a_node_that_stays_cut_off_are_dead_before_they_run_elsewhere(cluster: Cluster):
    run = AllocationRun(cluster, [waiting_jobs("a", 16)], "--node-timeout 20 --on-lost rerun")
    before = running(run, 16)
    again = before.on("n4")
    node = cluster.node("n4")
    node.cut()
    run.wait_for_log("n4: node lost")
    wait_for(lambda: all(len(JobTraces(run.wd).spans[name]) == 1 for name in again))
    go(run)
    done = run.wait()
    assert done.done.returncode == 0, run.log
    after = JobTraces(run.wd)
    assert len(again) == 4
    assert {name for name, spans in after.spans.items() if len(spans) == 2} <= again
    assert not any(after.overlap(name) for name in after.spans)
    assert set(after.ends.values()) == {1}
    assert len(after.ends) == 16
    assert all(last < first for name in again for last, first in [_last_on_n4_and_first_elsewhere(after, name)])


def _last_on_n4_and_first_elsewhere(lives: JobTraces, name: str) -> tuple[float, float]:
    spans = lives.spans[name]
    there = max(last for host, _, last in spans if host == "n4")
    elsewhere = [first for host, first, _ in spans if host != "n4"]
    return there, min(elsewhere, default=float("inf"))


@concurrent_test
def test_a_killed_agent_is_restarted_and_its_jobs_run_again(cluster: Cluster):
    run = AllocationRun(cluster, [waiting_jobs("a", 16)], "--on-lost rerun")
    before = running(run, 16)
    cluster.node("n2").exec("kill", "-KILL", str(run.agent_pid("n2")))
    wait_for(lambda: run.log.count("agent n2 connected") > 1, what=f"another agent on n2:\n{run.log}")
    wait_for(lambda: all(len(JobTraces(run.wd).spans[name]) == 2 for name in before.on("n2")), what="second starts")
    go(run)
    done = run.wait()
    assert done.done.returncode == 0, run.log
    after = JobTraces(run.wd)
    assert {name for name, spans in after.spans.items() if len(spans) == 2} == before.on("n2")
    assert not any(after.overlap(name) for name in after.spans)
    assert set(after.ends.values()) == {1}
    assert len(after.ends) == 16


SLOW_STARTS = """
srun=$(command -v srun); mkdir bin; export PATH=$PWD/bin:$PATH
printf '#!/bin/sh\\nsleep 7\\nexec %s "$@"\\n' $srun > bin/srun; chmod +x bin/srun
"""


@concurrent_test
def test_a_hanging_agent_is_replaced_before_its_jobs_run_elsewhere_even_if_agents_start_slowly(cluster: Cluster):
    options = "--on-lost rerun --node-timeout 30"
    run = AllocationRun(cluster, [waiting_jobs("a", 4)], options, first=SLOW_STARTS, nodes=3, ntasks_per_node=2)
    before = running(run, 4)
    cluster.node("n2").exec("kill", "-STOP", str(run.agent_pid("n2")))
    wait_for(lambda: all(len(JobTraces(run.wd).spans[name]) == 2 for name in before.on("n2")), 90, "second starts")
    go(run)
    done = run.wait()
    assert done.done.returncode == 0, run.log
    after = JobTraces(run.wd)
    assert before.on("n2")
    assert not any(after.overlap(name) for name in after.spans), run.log
    assert set(after.ends.values()) == {1}, run.log


@concurrent_test
def test_a_resumed_manager_finds_agents_and_jobs_of_a_killed_one_in_the_same_allocation(cluster: Cluster):
    run = AllocationRun(cluster, [waiting_jobs("a", 20)], then="qcg-pm run --resume .")
    running(run, 16)
    cluster.node("n1").exec("kill", "-KILL", str(run.manager_pid()))
    run.wait_for_log("resuming")

    def found_again() -> bool:
        since = run.log.partition("resuming")[2]
        return all(f"agent {node.name} connected from" in since for node in cluster.nodes)

    wait_for(found_again, what=f"all agents to be found again:\n{run.log}")
    go(run)
    done = run.wait()
    assert done.done.returncode == 0, run.log
    after = JobTraces(run.wd)
    assert all(len(spans) == 1 for spans in after.spans.values())
    assert len(after.ends) == 20
    assert set(after.ends.values()) == {1}
    assert run.log.count("starting agents") == 1


@long_concurrent_test
def test_a_node_that_never_connects_is_reported_and_not_used(cluster: Cluster):
    begin = "touch begun; until [ -e begin ]; do sleep 0.1; done"
    run = AllocationRun(cluster, [waiting_jobs("a", 12)], "--nl-init-timeout 25", first=begin)
    wait_for((run.wd / "begun").exists)
    cluster.node("n4").crash()
    go(run)
    (run.wd / "begin").touch()
    done = run.wait()
    assert done.done.returncode == 0, run.log
    assert "no agent has connected from n4 so far; jobs are started on the other nodes" in done.done.stdout
    assert "n4: node lost: no agent has connected from it within 25 s" in run.log
    assert {entry["runtime"]["allocation"][:2] for name, entry in done.report.items() if ":" in name} == {
        "n1",
        "n2",
        "n3",
    }


@concurrent_test
def test_a_run_resumed_in_another_allocation_knows_the_jobs_that_ended_without_a_manager(cluster: Cluster):
    run = AllocationRun(cluster, [waiting_jobs("a", 12)], nodelist="n1,n2", nodes=2, then="sleep 1000")
    running(run, 8)
    cluster.node("n1").exec("kill", "-KILL", str(run.manager_pid()))
    go(run)
    wait_for(lambda: len(JobTraces(run.wd).ends) == 8, what="the ends of jobs without a manager")
    ledgers = [run.run_dir / f"agent-{node}.ledger" for node in ("n1", "n2")]
    wait_for(lambda: sum(path.read_text().count('["e"') for path in ledgers) == 8, what="ends in the ledgers")
    run.job.cancel()
    run.job.wait()
    again = cluster.sbatch("qcg-pm run --resume .", nodes=2, nodelist="n3,n4", ntasks_per_node=4, time=10)
    assert again.wait() == 0, again.output + run.log
    after = JobTraces(run.wd)
    assert len(after.ends) == 12
    assert set(after.ends.values()) == {1}
    assert set(run.report_states().values()) == {"SUCCEED"}
