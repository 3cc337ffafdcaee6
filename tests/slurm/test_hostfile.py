"""`--resources hostfile:FILE` on hosts reached with `ssh`: the nodes of a cluster, without its batch system."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest

from tests.support.mpi import ENVIRONMENT
from tests.support.pilot import job, write_requests
from tests.support.slurm_cluster import Cluster
from tests.support.waiting import wait_for


def host_file(cluster: Cluster, text: str = "# of the test\nn1 2\nn2:3\nn3 slots=1\n") -> str:
    path = cluster.cwd / "hosts"
    path.write_text(text)
    return f"hostfile:{path}"


def test_jobs_run_on_all_hosts_and_nothing_is_left_behind(cluster: Cluster):
    show = "hostname; env | grep -cE '^SLURM' ; echo $QCG_PM_NODELIST; sleep 1"
    write_requests(cluster.cwd / "jobs.json", [job("where", script=show, iteration={"stop": 6}, stdout="out.${it}")])
    done = cluster.run("qcg-pm", "run", "jobs.json", "--resources", host_file(cluster), timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    outputs = [(cluster.cwd / f"out.{index}").read_text().split() for index in range(6)]
    assert Counter(host for host, _, _ in outputs) == {"n1": 2, "n2": 3, "n3": 1}
    assert all(variables == "0" and host == node for host, variables, node in outputs)
    assert not list(cluster.cwd.glob(".qcgpjm-service-*/agent-*.json"))


def test_a_run_on_hosts_is_resumed_on_the_same_hosts(cluster: Cluster):
    script = "echo $$ >> starts.${it}; touch up.${it}; while [ ! -e go ]; do sleep 0.1; done"
    write_requests(cluster.cwd / "jobs.json", [job("a", script=script, iteration={"stop": 3})])
    hosts = host_file(cluster, "n1 1\nn2 1\nn3 1\n")
    manager = cluster.start("qcg-pm", "run", "jobs.json", "--id=r", "--resources", hosts)
    wait_for(lambda: all((cluster.cwd / f"up.{index}").exists() for index in range(3)))
    contact = json.loads((cluster.cwd / ".qcgpjm-service-r/contact.json").read_text())
    cluster.run("kill", f"-{signal.SIGKILL.value}", str(contact["pid"]))
    manager.wait(30)
    (cluster.cwd / "go").touch()
    refused = cluster.run("qcg-pm", "run", "--resume", ".", "--resources", "local", timeout=90, check=False)
    assert refused.returncode == 2
    assert "was started on n1 by ssh and may still run jobs there; resume the run with a host file" in refused.stderr
    done = cluster.run("qcg-pm", "run", "--resume", ".", timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert [len((cluster.cwd / f"starts.{index}").read_text().split()) for index in range(3)] == [1, 1, 1]


@pytest.mark.parametrize(("model", "mpirun"), [("openmpi", "mpirun.openmpi"), ("intelmpi", "mpiexec.hydra")])
def test_an_mpi_program_spans_hosts(cluster: Cluster, model: str, mpirun: str):
    options = {"mpirun": mpirun}
    spanning = job(
        "mpi",
        script="hostname",
        model=model,
        model_opts=options,
        env=ENVIRONMENT,
        numNodes=2,
        numCores=1,
        stdout="out",
        stderr="err",
    )
    write_requests(cluster.cwd / "jobs.json", [spanning])
    hosts = host_file(cluster, "n1 1\nn2 1\n")
    done = cluster.run("qcg-pm", "run", "jobs.json", "--resources", hosts, timeout=90, check=False)
    assert done.returncode == 0, (done.stderr, (cluster.cwd / "err").read_text())
    assert sorted((cluster.cwd / "out").read_text().split()) == ["n1", "n2"]


def test_an_unreachable_host_is_not_used(cluster: Cluster):
    write_requests(cluster.cwd / "jobs.json", [job("a", script="hostname > a.out")])
    hosts = host_file(cluster, "n1 1\nnowhere 1\n")
    options = ["--nl-init-timeout", "5", "--nl-ready-threshold", "0.5", "--resources", hosts]
    done = cluster.run("qcg-pm", "run", "jobs.json", *options, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert (cluster.cwd / "a.out").read_text() == "n1\n"


def test_an_invalid_host_file_is_refused_with_the_line_number(cluster: Cluster):
    write_requests(cluster.cwd / "jobs.json", [job("a", "true")])
    done = cluster.run("qcg-pm", "run", "jobs.json", "--resources", host_file(cluster, "n1 1\nn2\n"), check=False)
    assert done.returncode == 2
    assert f"{cluster.cwd}/hosts, line 2: 'n2' is not a host with its number of cores" in done.stderr
    without_file = cluster.run("qcg-pm", "run", "jobs.json", "--resources", "hostfile:", check=False)
    assert "hostfile needs a file: --resources hostfile:FILE" in without_file.stderr
