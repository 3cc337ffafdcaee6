"""A program in the manner of QLauncher: everything is an `openmpi` job on one core, and a loop waits for any end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager

SOLVE = "import sys; print(int(sys.argv[1]) ** 2)"


def test_one_core_jobs_and_a_loop_over_their_ends_work_without_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As on a machine without MPI: `mpirun` is a program that fails."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mpirun").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin/mpirun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    manager = LocalManager(["--wd", str(tmp_path), "--nodes", "2"], {"wdir": str(tmp_path)})
    try:
        waiting: dict[str, int] = {}
        for number in range(6):
            out = f"job.{number}.out"
            job = Jobs().add(
                exec=sys.executable, args=["-c", SOLVE, str(number)], stdout=out, model="openmpi", numCores=1
            )
            waiting[manager.submit(job)[0]] = number
        results: dict[int, str] = {}
        while waiting:
            name, state = manager.wait4_any_job_finish()
            assert state == "SUCCEED"
            number = waiting.pop(name)
            results[number] = (tmp_path / f"job.{number}.out").read_text()
        assert results == {number: f"{number**2}\n" for number in range(6)}
        assert manager.resources()["free_cores"] == 2
    finally:
        manager.finish()
        manager.cleanup()
        manager.kill_manager_process()
