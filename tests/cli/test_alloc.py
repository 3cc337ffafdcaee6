"""`qcg-pm alloc`: the command for every batch system, with programs in place of those of Slurm."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.pilot import environment, job, run, write_requests
from tests.support.slurm_programs import SlurmPrograms


@pytest.fixture
def programs(tmp_path: Path) -> SlurmPrograms:
    return SlurmPrograms(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write_requests(tmp_path / "jobs.json", [job("a", "true")]).name


def call(programs: SlurmPrograms, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("qcg-pm", command, *arguments, cwd=programs.path.parent, env=environment(PATH=str(programs.path)))


def test_alloc_and_sbatch_write_the_same_script(programs: SlurmPrograms, file: str):
    options = [file, "--id=same", "--nodes=2x4", "--time=1h", "--max-allocations=3", "--on-lost=rerun", "--dry-run"]
    by_alloc = call(programs, "alloc", *options, "--submit-arg=--constraint=fast")
    by_sbatch = call(programs, "sbatch", *options, "--sbatch-arg=--constraint=fast")
    assert by_alloc.returncode == 0, by_alloc.stderr
    assert "#SBATCH --constraint=fast\n" in by_alloc.stdout
    assert by_alloc.stdout == by_sbatch.stdout


def test_alloc_submits_to_the_batch_system_that_is_installed(programs: SlurmPrograms, file: str):
    done = call(programs, "alloc", file, "--id=mine")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Submitted batch job ")
    note = json.loads((programs.path.parent / ".qcgpjm-sbatch-mine/submission.json").read_text())
    assert note["system"] == "slurm"
    assert note["run_dir"] == str(programs.path.parent / ".qcgpjm-service-mine")


def test_a_submission_of_an_earlier_version_names_no_batch_system(programs: SlurmPrograms, file: str):
    assert call(programs, "alloc", file, "--id=mine").returncode == 0
    path = programs.path.parent / ".qcgpjm-sbatch-mine/submission.json"
    note = json.loads(path.read_text())
    del note["system"]
    path.write_text(json.dumps(note))
    programs.know(note["job"], "PENDING")
    again = call(programs, "alloc", file, "--id=mine")
    assert again.returncode == 2
    assert f"Slurm job {note['job']} (PENDING) will go on with this run" in again.stderr


def test_a_batch_system_that_is_not_known_is_refused(programs: SlurmPrograms, file: str):
    done = call(programs, "alloc", file, "--batch-system=none")
    assert done.returncode == 2
    assert "'none' is not" in done.stderr
