"""Checks before a run is resumed, and agents on kernels without pidfds."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qcg.pilotjob.agent.pidfile import AgentPid, lock_path, write_agent_pid
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.executors import process
from qcg.pilotjob.runs import guard, manager_process, rundir
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import AgentsContact

AGENTS = AgentsContact("tcp://127.0.0.1:1", "", "", "")

SHOWN = """JobId={id} JobName=x
   JobState={state} Reason=None Dependency=(null)
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A Slurm that knows only these jobs; until the function is called, there is no Slurm."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(programs))

    def make(cluster: str = "big", **jobs: str) -> None:
        for id, state in jobs.items():
            (programs / f"{id}.txt").write_text(SHOWN.format(id=id.removeprefix("job"), state=state))
        script = programs / "scontrol"
        script.write_text(
            "#!/bin/bash\n"
            f'if [ "$2" = config ]; then echo "ClusterName             = {cluster}"; exit; fi\n'
            f'if [ -e {programs}/job$3.txt ]; then echo "$(<{programs}/job$3.txt)"; exit; fi\n'
            'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1\n'
        )
        script.chmod(0o755)

    return make


def an_agent(run_dir: Path, name: str, allocation: str = "", *, outside: bool = False) -> Path:
    path = run_dir / f"agent-{name}.json"
    cluster = "big" if allocation else ""
    path.write_bytes(msgspec.json.encode(AgentPid(1, 1, name, allocation, cluster, outside)))
    return path


def in_allocation(monkeypatch: pytest.MonkeyPatch, job_id: str, node: str = "n1") -> None:
    monkeypatch.setenv("SLURM_JOB_ID", job_id)
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "big")
    monkeypatch.setenv("SLURMD_NODENAME", node)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")


def on_another_host(run_dir: Path) -> None:
    """A manager that has announced itself on another host."""
    found = contact.read(run_dir)
    assert found is not None
    contact.write(run_dir, msgspec.structs.replace(found, host="elsewhere"))


def test_a_run_whose_agent_is_on_another_host_is_not_resumed(run_dir: Path, slurm: Callable[..., None]):
    path = an_agent(run_dir, "elsewhere")
    with pytest.raises(UsageError, match="started on elsewhere and may still run jobs there"):
        guard.check_agents(run_dir, "i")
    path.unlink()
    guard.check_agents(run_dir, "i")


@pytest.mark.parametrize(
    "content", [b"", bytes(40), b"{", b"[]", b'{"pid": "x", "started": 1, "host": "h"}', b'{"pid": 1, "host": "\xff"}']
)
def test_a_damaged_pid_file_is_an_error_unless_its_agent_runs_on_this_host(run_dir: Path, content: bytes):
    path = run_dir / "agent-local.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"agent-local\.json is damaged.* remove the file"):
        guard.check_agents(run_dir, "i")
    lock = os.open(lock_path(run_dir, "local"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        guard.check_agents(run_dir, "i")
    finally:
        os.close(lock)


def test_agents_on_other_hosts_of_the_same_allocation_are_kept(
    run_dir: Path, slurm: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    path = an_agent(run_dir, "n2", "17")
    in_allocation(monkeypatch, "17")
    guard.check_agents(run_dir, "i")
    assert path.exists()
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "another")
    with pytest.raises(UsageError, match="whether allocation 17 is over"):
        guard.check_agents(run_dir, "i")


def test_agents_of_an_ended_allocation_have_ended(run_dir: Path, slurm: Callable[..., None]):
    slurm(job18="RUNNING", job19="TIMEOUT")
    an_agent(run_dir, "n2", "17")
    an_agent(run_dir, "n3", "19")
    other = an_agent(run_dir, "n4", "18")
    with pytest.raises(UsageError, match="started on n4 in allocation 18, which is not over"):
        guard.check_agents(run_dir, "i")
    other.unlink()
    guard.check_agents(run_dir, "i")
    assert not list(run_dir.glob("agent-*.json"))


def test_a_resume_waits_for_an_allocation_that_is_about_to_end(
    run_dir: Path, slurm: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    slurm(job17="COMPLETING")
    path = an_agent(run_dir, "n2", "17")
    monkeypatch.setattr("time.sleep", lambda seconds: slurm(job17="CANCELLED"))
    guard.check_agents(run_dir, "i")
    assert not path.exists()


def test_an_allocation_that_does_not_end_for_long_is_an_error(
    run_dir: Path, slurm: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(guard, "ALLOCATION_END_TIMEOUT", 0.0)
    slurm(job17="COMPLETING")
    path = an_agent(run_dir, "n2", "17")
    with pytest.raises(UsageError, match="wait until job 17 has ended"):
        guard.check_agents(run_dir, "i")
    assert path.exists()


def test_without_slurm_an_allocation_does_not_count_as_ended(run_dir: Path, slurm: Callable[..., None]):
    path = an_agent(run_dir, "n2", "17")
    with pytest.raises(UsageError, match=r"whether allocation 17 is over: .* ask on a host of cluster big"):
        guard.check_agents(run_dir, "i")
    slurm(cluster="small")
    with pytest.raises(UsageError, match="Slurm here is that of cluster small"):
        guard.check_agents(run_dir, "i")
    assert path.exists()


def test_a_live_agent_of_another_allocation_on_this_host_is_an_error(
    run_dir: Path, slurm: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    write_agent_pid(run_dir, "n1", "17", "big", "slurm")
    slurm()
    with pytest.raises(UsageError, match="is at work on this host, for allocation 17"):
        guard.check_agents(run_dir, "i")
    assert (run_dir / "agent-n1.json").exists()


def test_an_agent_started_by_ssh_has_ended_when_its_host_reports_it(
    run_dir: Path, slurm: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    slurm()
    path = an_agent(run_dir, "n2", "17", outside=True)
    with pytest.raises(UsageError, match=r"started on n2 by ssh .* although allocation 17 is over"):
        guard.check_agents(run_dir, "i")
    assert path.exists()
    monkeypatch.setattr(guard, "has_left", lambda node, pid, instance: (node, pid, instance) == ("n2", 1, "i"))
    guard.check_agents(run_dir, "i")
    assert not path.exists()


def test_a_manager_on_this_host_is_at_work_whatever_slurm_says(
    run_dir: Path, slurm: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    in_allocation(monkeypatch, "17")
    guard.announce(run_dir, AGENTS, None)
    with pytest.raises(UsageError, match="is at work in"):
        guard.check_no_manager(run_dir)
    slurm()
    with pytest.raises(UsageError, match="is at work in"):
        guard.check_no_manager(run_dir)


def test_a_manager_on_a_node_ends_with_its_allocation(
    run_dir: Path, slurm: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    in_allocation(monkeypatch, "17")
    guard.announce(run_dir, AGENTS, None)
    on_another_host(run_dir)
    with pytest.raises(UsageError, match="is at work in"):
        guard.check_no_manager(run_dir)
    slurm()
    guard.check_no_manager(run_dir)


def test_a_manager_on_a_login_node_does_not_end_with_its_allocation(
    run_dir: Path, slurm: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    in_allocation(monkeypatch, "17", node="login")
    guard.announce(run_dir, AGENTS, None)
    on_another_host(run_dir)
    slurm()
    with pytest.raises(UsageError, match="is at work in"):
        guard.check_no_manager(run_dir)


def test_the_age_of_a_contact_file_is_measured_by_the_clock_of_its_file_system(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("time.time", lambda: 0.0)
    made = run_dir / "made"
    made.touch()
    assert abs(manager_process._file_system_time(run_dir) - made.stat().st_mtime) < 5


def test_a_working_directory_that_is_not_utf_8_is_refused_with_a_sentence(tmp_path: Path):
    with pytest.raises(UsageError, match="not UTF-8"):
        rundir.create(tmp_path / os.fsdecode(b"caf\xe9"), None)


def test_a_file_as_working_directory_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"/file is not a directory, so that no run can be in it; choose another --wd"):
        rundir.create(tmp_path / "file", None)


def test_an_agent_is_watched_without_a_pidfd(monkeypatch: pytest.MonkeyPatch):
    def unknown(pid: int) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(os, "pidfd_open", unknown)
    monkeypatch.setattr(process, "POLL_INTERVAL", 0.01)

    child = subprocess.Popen(["sleep", "100"])

    async def scenario() -> None:
        gone = asyncio.Event()
        watched = process.WatchedProcess(child.pid, child, gone.set)
        await asyncio.sleep(0)
        assert not watched.exited.is_set()
        watched.kill()
        await asyncio.wait_for(gone.wait(), 10)

    asyncio.run(scenario())
