"""Two runs at the same time on one host, or in one directory: neither harms the other without a notice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qcg.pilotjob.agent.pidfile import read_agent_pid
from qcg.pilotjob.api.manager import LocalManager
from tests.support.pilot import job, run, write_requests
from tests.support.serving import Served, served

CORES = sorted(os.sched_getaffinity(0))
AFFINITY = ("python3", "-c", "import os; print(*sorted(os.sched_getaffinity(0)))")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Served]:
    """A run that has claimed all cores of this host."""
    with served(tmp_path / "other") as service:
        yield service


def affinity_of_a_job(directory: Path, *options: str) -> tuple[list[int], str]:
    """The cores that the job of a second run may use, and what its command printed to stderr."""
    directory.mkdir(exist_ok=True)
    path = write_requests(directory / "requests.json", [job("a", *AFFINITY, stdout="cores")])
    done = run("qcg-pm", "run", path, "--wd", directory, *options)
    assert done.returncode == 0, done.stderr
    return list(map(int, (directory / "cores").read_text().split())), done.stderr


@contextmanager
def bound_to(cores: set[int]) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def test_a_single_run_binds_jobs_to_cores_without_a_notice(tmp_path: Path):
    for _ in range(2):  # the first run has released its cores
        cores, notices = affinity_of_a_job(tmp_path / "mine")
        assert cores == CORES[:1]
        assert "cores of this host" not in notices


def test_a_run_without_free_cores_shares_them_unbound_and_prints_a_notice(tmp_path: Path, other: Served):
    cores, notices = affinity_of_a_job(tmp_path / "mine")
    assert cores == CORES
    notice = (
        f"All {len(CORES)} cores of this host are in use by {other.run_dir} (manager {other.process.pid}): this run"
        " shares them, and its jobs are not bound to cores."
    )
    assert notice in " ".join(notices.split())
    assert notice in (tmp_path / "mine" / "service.log").read_text()


def test_a_run_gets_the_cores_that_are_left(tmp_path: Path):
    first = {CORES[0]}
    with bound_to(first):
        other = Served(tmp_path / "other")
    try:
        cores, notices = affinity_of_a_job(tmp_path / "mine")
        all_cores = job("big", "true", resources={"numCores": {"exact": len(CORES)}})
        path = write_requests(tmp_path / "big.json", [all_cores])
        too_big = run("qcg-pm", "run", path, "--wd", tmp_path / "mine")
    finally:
        other.end()
    assert cores == CORES[1:2]
    assert f"This run uses {len(CORES) - 1} of the {len(CORES)} cores of this host: the others are in use by" in notices
    assert too_big.returncode == 1
    exist = "1 exists" if len(CORES) == 2 else f"{len(CORES) - 1} exist"
    why = f"{len(CORES)} cores requested, but only {exist}; other runs of this user have claimed 1 core"
    assert why in " ".join(too_big.stdout.split())


def test_with_share_cores_jobs_are_bound_to_the_cores_of_another_run(tmp_path: Path, other: Served):
    cores, notices = affinity_of_a_job(tmp_path / "mine", "--share-cores")
    assert cores == CORES[:1]
    assert f"{len(CORES)} of {len(CORES)} cores of this host are shared with {other.run_dir}" in " ".join(
        notices.split()
    )


def test_with_no_bind_jobs_are_not_bound_and_no_core_is_claimed(tmp_path: Path):
    with served(tmp_path / "other", "--no-bind") as other:
        other.submit(job("a", *AFFINITY, stdout="cores"))
        other.wait("a", "SUCCEED")
        assert list(map(int, (tmp_path / "other" / "cores").read_text().split())) == CORES
        cores, notices = affinity_of_a_job(tmp_path / "mine")
    assert cores == CORES[:1]
    assert "cores of this host" not in notices


def test_virtual_nodes_claim_nothing(tmp_path: Path):
    with served(tmp_path / "other", "--nodes", "4"):
        cores, notices = affinity_of_a_job(tmp_path / "mine")
    assert cores == CORES[:1]
    assert "cores of this host" not in notices


def test_the_cores_of_a_killed_manager_stay_claimed_while_its_agent_lives(tmp_path: Path, other: Served):
    other.submit(job("a", "sleep", "600"))
    other.wait("a", "EXECUTING")
    other.kill()
    agent = read_agent_pid(other.run_dir, "local")
    assert agent is not None
    cores, notices = affinity_of_a_job(tmp_path / "mine")
    assert cores == CORES
    assert f"in use by {other.run_dir} (agent {agent.pid})" in " ".join(notices.split())
    other.resume()
    assert other.data("resourcesInfo")["total_cores"] == len(CORES)
    assert "cores of this host" not in other.log()
    other.process.send_signal(signal.SIGTERM)
    other.process.wait()
    assert affinity_of_a_job(tmp_path / "mine")[0] == CORES[:1]


def test_the_manager_of_a_client_program_claims_cores(tmp_path: Path):
    with LocalManager(["--wd", str(tmp_path / "program")], {"log_file": ""}) as manager:
        cores, notices = affinity_of_a_job(tmp_path / "mine")
        assert manager.qcgpm_conf["run_dir"] in notices
    assert cores == CORES


def test_a_run_warns_about_an_unusable_claims_directory_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("QCG_PM_CLAIMS", str(tmp_path / "missing" / "claims"))
    cores, notices = affinity_of_a_job(tmp_path / "mine")
    assert cores == CORES[:1]
    assert "The cores of this host cannot be claimed" in notices


def test_a_second_run_in_the_same_directory_warns_about_shared_files(tmp_path: Path):
    with served(tmp_path, "--nodes", "1") as first:
        path = write_requests(tmp_path / "requests.json", [job("a", "true")])
        done = run("qcg-pm", "run", path, "--wd", tmp_path, "--nodes", "1")
    assert done.returncode == 0
    assert f"Another run works in the same directory: {first.run_dir}." in " ".join(done.stderr.split())
    assert "--wd DIRECTORY" in done.stderr


def test_runs_in_separate_directories_print_no_notice(tmp_path: Path, other: Served):
    _, notices = affinity_of_a_job(tmp_path / "mine")
    assert "Another run" not in notices
    assert json.loads((other.run_dir / "contact.json").read_text())["pid"] == other.process.pid
