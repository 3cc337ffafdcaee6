"""The allocation ends before its jobs: they get a signal, are ended, and continue in the next allocation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.slurm.allocation_run import AllocationRun, run_in
from tests.slurm.concurrent_tests import concurrent_test, long_concurrent_test
from tests.support.pilot import Run, job
from tests.support.slurm_cluster import Cluster
from tests.support.waiting import wait_for

SHORT = 24
"""Number of jobs that end at once."""
RECORDING = """
trap 'echo told >> signals.$0' USR1
echo $(hostname) >> starts.$0
exec {never}<> <(:)
until [ -e go ] || [ $0 -lt 24 ]; do read -rt 0.1 -u $never; done
echo done >> ends.$0
"""


def recording_jobs(count: int, **more: Any) -> dict[str, Any]:
    """Jobs that record each start, signal and end, and wait for the file `go`."""
    return job("a", "bash", "-c", RECORDING, "${it}", iteration={"stop": count}, **more)


def lines(wd: Path, kind: str) -> dict[str, int]:
    return {path.suffix[1:]: len(path.read_text().splitlines()) for path in wd.glob(f"{kind}.*")}


def resume(first: AllocationRun, **sbatch: Any) -> Run:
    """Resume the run in another allocation."""
    code = "qcg-pm run --resume . --time-limit 1h"
    again = first.cluster.sbatch(code, **{"nodes": 4, "ntasks_per_node": 4, "time": 10, **sbatch})
    assert again.wait(120) == 0, first.log
    return run_in(first.wd)


def assert_all_succeeded_once(run: Run, count: int) -> None:
    """Each job has succeeded, and ended once."""
    assert set(run.states.values()) == {"SUCCEED"}
    assert len(run.states) == count + 1
    assert lines(run.wd, "ends") == {str(number): 1 for number in range(count)}


@long_concurrent_test
def test_jobs_get_the_grace_signal_before_the_time_limit_and_continue_in_the_next_allocation(cluster: Cluster):
    first = AllocationRun(cluster, [recording_jobs(SHORT + 200)], "--grace 30 --grace-signal USR1", time=3)
    wait_for(lambda: len(lines(first.wd, "starts")) == SHORT + 16)
    # Slurm shortens a limit at once: the manager reads it again after half a minute.
    cluster.run("scontrol", "update", f"JobId={first.job.id}", "EndTime=now+70")
    first.wait_for_log("no job is started any more; running jobs get SIGUSR1", timeout=90)
    wait_for(lambda: len(lines(first.wd, "signals")) == 16)
    assert first.job.wait(120) == 4, first.log
    assert (
        "1 job is left, because the time of this manager is over. Continue with: qcg-pm sbatch --resume"
        in first.job.output
    )
    started = lines(first.wd, "starts")
    # Any of the other jobs may have started: some were prefilled and retracted.
    assert started.keys() >= {str(number) for number in range(SHORT)}
    assert list(started.values()) == [1] * (SHORT + 16)
    assert lines(first.wd, "signals") == {number: 1 for number in started if int(number) >= SHORT}
    (first.wd / "go").touch()
    second = resume(first, nodes=3)
    assert_all_succeeded_once(second, SHORT + 200)
    assert all(lines(first.wd, "starts")[str(number)] == 1 for number in range(SHORT)), "quick jobs ran once"


@concurrent_test
def test_a_cancelled_allocation_leaves_a_run_that_can_be_resumed(cluster: Cluster):
    first = AllocationRun(cluster, [recording_jobs(SHORT + 40)])
    wait_for(lambda: len(lines(first.wd, "starts")) == SHORT + 16)
    first.job.cancel()
    first.job.wait_for_state(60)
    wait_for(lambda: "the manager has ended:" in first.log)
    assert "the allocation ends (SIGTERM)" in first.log
    assert "FAILED" not in first.log
    (first.wd / "go").touch()
    assert_all_succeeded_once(resume(first, nodes=2, ntasks_per_node=2), SHORT + 40)


@concurrent_test
def test_multinode_jobs_continue_in_the_next_allocation(cluster: Cluster):
    rank = "echo up > up.$0.$SLURM_PROCID; until [ -e go ]; do sleep 0.1; done; echo done >> ends.$0.$SLURM_PROCID"
    shape = {"model": "srunmpi", "numNodes": 2, "numCores": 2, "iteration": {"stop": 4}}
    first = AllocationRun(cluster, [job("mpi", "bash", "-c", rank, "${it}", **shape)])
    wait_for(lambda: len(list(first.wd.glob("up.*"))) == 16, what=f"16 ranks:\n{first.log}")
    first.job.cancel()
    first.job.wait_for_state(60)
    wait_for(lambda: "the manager has ended:" in first.log)
    assert "FAILED" not in first.log
    (first.wd / "go").touch()
    second = resume(first, nodes=3)
    assert set(second.states.values()) == {"SUCCEED"}
    ends = {path.name: path.read_text() for path in first.wd.glob("ends.*")}
    assert len(ends) == 16
    assert set(ends.values()) == {"done\n"}


@concurrent_test
def test_a_requeued_batch_job_continues_its_run(cluster: Cluster):
    quick = job("quick", "bash", "-c", "echo ran >> quick.$0", "${it}", iteration={"stop": 4})
    waiting = "echo started >> slow; until [ -e go ]; do sleep 0.2; done"
    slow = job("slow", "bash", "-c", waiting, after=["quick"])  # by then, the quick jobs have ended
    run = AllocationRun(cluster, [quick, slow], nodes=2, ntasks_per_node=2, requeue=True)
    wait_for(lambda: (run.wd / "slow").exists() and (run.wd / "slow").read_text(), what=f"the slow job:\n{run.log}")
    cluster.run("scontrol", "requeue", run.job.id)
    wait_for(lambda: run.job.state == "PENDING", what="the job to wait again")
    cluster.run("scontrol", "update", f"JobId={run.job.id}", "StartTime=now")
    wait_for(lambda: len((run.wd / "slow").read_text().split()) == 2, 90, f"the second start:\n{run.log}")
    (run.wd / "go").touch()
    wait_for(lambda: run.job.state == "COMPLETED", what="the end of the job")
    assert f"continuing with {run.run_dir}" in run.job.output
    assert {(run.wd / f"quick.{index}").read_text() for index in range(4)} == {"ran\n"}
