"""The test cluster behaves as the other tests expect."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.slurm_cluster import Cluster, running_cluster
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]


def test_each_node_is_a_separate_host(cluster: Cluster):
    job = cluster.sbatch("srun hostname | sort", nodes=3, ntasks_per_node=2)
    assert job.wait() == 0
    assert job.output.split() == ["n1", "n1", "n2", "n2", "n3", "n3"]


def test_a_batch_job_reports_its_exit_code_and_state(cluster: Cluster):
    failing = cluster.sbatch("exit 3")
    killed = cluster.sbatch("kill -KILL $$")
    assert (failing.wait(), failing.wait_for_state()) == (3, "FAILED")
    assert killed.wait() == 128 + 9


def test_salloc_runs_on_the_login_node(cluster: Cluster):
    done = cluster.salloc("bash", "-c", "hostname; srun hostname", nodes=1, nodelist="n3")
    assert done.stdout.split() == ["login", "n3"]


def test_a_node_can_crash_and_boot(cluster: Cluster):
    node = cluster.node("n2")
    job = cluster.sbatch("touch up; exec sleep 600", nodelist="n2")
    wait_for((cluster.cwd / "up").exists)
    assert node.processes()
    node.crash()
    assert not node.processes()
    node.boot()
    job.cancel()
    assert cluster.run("srun", "-w", "n2", "hostname").stdout == "n2\n"


def test_a_node_can_be_cut_off_and_reconnected(cluster: Cluster):
    node = cluster.node("n4")

    def reaches_login(patience: int = 20) -> bool:
        connect = ["timeout", str(patience), "bash", "-c", "< /dev/tcp/login/6817"]
        return node.exec(*connect, check=False).returncode == 0

    assert reaches_login()
    node.cut()
    assert not reaches_login(patience=1)
    node.heal()
    assert reaches_login()


def test_calls_to_the_controller_are_counted(cluster: Cluster):
    before = cluster.calls()
    assert cluster.sbatch("for i in 1 2 3; do scontrol show job $SLURM_JOB_ID; done; srun true").wait() == 0
    calls = cluster.calls() - before
    assert calls["REQUEST_JOB_INFO_SINGLE"] == 3
    assert calls["REQUEST_JOB_STEP_CREATE"] >= 1


def test_processes_that_a_batch_job_leaves_behind_are_found_and_killed(cluster: Cluster):
    job = cluster.sbatch("(setsid setsid sleep 601 &) ; (setsid sleep 602 &)")
    cluster.run("bash", "-c", "(setsid sleep 603 &)")
    assert job.wait() == 0
    wait_for(lambda: any(str(one).endswith(" sleep 603") for _, one in cluster.left_behind()), what="the process")
    ended = cluster.clean_up()
    assert len([line for line in ended if line.startswith("login: ") and line.endswith("sleep 603")]) == 1
    assert cluster.left_behind() == []


def test_nodes_are_reached_with_ssh(cluster: Cluster):
    reach = ["ssh", "-oBatchMode=yes", "-oConnectTimeout=10"]
    assert cluster.run(*reach, "n2", "hostname").stdout == "n2\n"
    assert cluster.node("n3").exec(*reach, "n4", "hostname").stdout == "n4\n"


def test_shells_on_nodes_read_no_startup_files_of_this_machine(cluster: Cluster):
    reading = "cat ~/.bashrc ~/.bash_profile ~/.bash_login ~/.profile 2>/dev/null"
    assert cluster.run("ssh", "-oBatchMode=yes", "n2", reading, check=False).stdout == ""


def test_slurm_binds_tasks_to_cpus_on_the_real_cluster(real_cluster: Cluster):
    script = "srun -n2 --cpu-bind=cores grep Cpus_allowed_list /proc/self/status"
    job = real_cluster.sbatch(script, nodes=1, ntasks=2)
    assert job.wait() == 0
    assert sorted(line.split()[1] for line in job.output.splitlines()) == ["0", "1"]


def test_a_cluster_leaves_nothing_behind(cluster: Cluster):
    with running_cluster(nodes=1, gpus=0) as small:
        assert small.run("srun", "hostname").stdout == "n1\n"
        assert cluster.run("srun", "-N4", "true").returncode == 0
    assert not small.directory.exists()


@pytest.mark.usefixtures("clusters_are_possible")
def test_a_cluster_ends_when_the_test_process_is_killed():
    program = """
import time
from tests.support.slurm_cluster import running_cluster
with running_cluster(nodes=1) as cluster:
    print(cluster.directory, flush=True)
    time.sleep(600)
"""
    tests = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    with tests.stdout:
        directory = Path(tests.stdout.readline().strip())
    login = int((directory / "login.pid").read_text())
    assert processes.is_alive(login)
    tests.kill()
    tests.wait()
    wait_for(lambda: not processes.is_alive(login), what="the end of the login node")
    shutil.rmtree(directory)
