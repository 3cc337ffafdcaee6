"""Who may take up a run, and agents on kernels that give no descriptor of a process."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from pathlib import Path

import pytest

from qcg.pilotjob import guard, rundir
from qcg.pilotjob.executors import process
from qcg.pilotjob.options import UsageError


def test_a_run_whose_agent_is_on_another_host_is_not_taken_up(run_dir: Path):
    path = run_dir / "agent-local.json"
    path.write_text('{"pid": 1, "started": 1, "host": "elsewhere"}')
    with pytest.raises(UsageError, match="started on elsewhere and may still run jobs there"):
        guard.check_agents(run_dir, None)
    path.unlink()
    guard.check_agents(run_dir, None)


def test_agents_on_other_hosts_of_the_same_allocation_are_called(run_dir: Path):
    (run_dir / "agent-n2.json").write_text('{"pid": 1, "started": 1, "host": "n2", "allocation": "17"}')
    guard.check_agents(run_dir, "17")
    assert (run_dir / "agent-n2.json").exists()


def test_agents_of_an_allocation_that_is_over_are_gone(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def is_over(job_id: str, environ: object) -> bool:
        asked.append(job_id)
        return job_id == "17"

    monkeypatch.setattr(guard, "is_over", is_over)
    for node, allocation in (("n2", "17"), ("n3", "17"), ("n4", "18")):
        path = run_dir / f"agent-{node}.json"
        path.write_text(f'{{"pid": 1, "started": 1, "host": "{node}", "allocation": "{allocation}"}}')
    with pytest.raises(UsageError, match="started on n4 and may still run jobs there"):
        guard.check_agents(run_dir, "19")
    assert sorted(asked) in (["17", "18"], ["18"])
    (run_dir / "agent-n4.json").unlink()
    guard.check_agents(run_dir, "19")
    assert not list(run_dir.glob("agent-*.json"))


def test_the_clock_of_the_directory_counts_and_not_that_of_this_machine(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("time.time", lambda: 0.0)
    made = run_dir / "made"
    made.touch()
    assert abs(guard._now_of(run_dir) - made.stat().st_mtime) < 5


def test_a_working_directory_that_is_not_utf_8_is_refused_with_a_sentence(tmp_path: Path):
    with pytest.raises(UsageError, match="not UTF-8"):
        rundir.create(tmp_path / os.fsdecode(b"caf\xe9"), None)


def test_an_agent_is_watched_without_a_descriptor_too(monkeypatch: pytest.MonkeyPatch):
    def unknown(pid: int) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(os, "pidfd_open", unknown)
    monkeypatch.setattr(process, "LOOK", 0.01)

    child = subprocess.Popen(["sleep", "100"])

    async def scenario() -> None:
        gone = asyncio.Event()
        watched = process.WatchedProcess(child.pid, child, gone.set)
        await asyncio.sleep(0)
        assert not watched.exited.is_set()
        watched.kill()
        await asyncio.wait_for(gone.wait(), 10)

    asyncio.run(scenario())
