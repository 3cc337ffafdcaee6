"""`qcg-pm alloc`: the command for every batch system, with stubs of the commands of Slurm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from qcg.pilotjob.cli.commands import alloc
from qcg.pilotjob.cluster import registry
from qcg.pilotjob.cluster.base import AllocationQueue, AllocationView
from qcg.pilotjob.cluster.commands import COMMAND_TIMEOUT
from qcg.pilotjob.cluster.registry import Registration
from qcg.pilotjob.cluster.slurm.queue import SlurmQueue
from qcg.pilotjob.cluster.slurm.system import Slurm
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.runs.chain_state import ChainState, write_chain_state
from qcg.pilotjob.runs.submissions import Submission, read_submission, write_submission
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
    note = json.loads((programs.path.parent / ".qcgpjm-alloc-mine/submission.json").read_text())
    assert note["system"] == "slurm"
    assert note["run_dir"] == str(programs.path.parent / ".qcgpjm-service-mine")


def test_a_submission_of_an_earlier_version_names_no_batch_system(programs: SlurmPrograms, file: str):
    assert call(programs, "alloc", file, "--id=mine").returncode == 0
    path = programs.path.parent / ".qcgpjm-alloc-mine/submission.json"
    note = json.loads(path.read_text())
    del note["system"]
    path.write_text(json.dumps(note))
    programs.know(note["job"], "PENDING")
    again = call(programs, "alloc", file, "--id=mine")
    assert again.returncode == 2
    assert f"Slurm job {note['job']} (PENDING) will continue this run" in again.stderr


def test_the_help_shows_no_further_option_of_one_batch_system(programs: SlurmPrograms, file: str):
    shown = call(programs, "alloc", "--help").stdout
    assert "--submit-arg OPTION" in shown
    assert "--constraint" not in shown


def test_no_message_mentions_an_unknown_output_file(programs: SlurmPrograms, file: str):
    programs.know("6", "PENDING", "Resources")
    done = call(programs, "alloc", file)
    assert done.returncode == 0
    assert "Job 6 is PENDING (Resources)." in done.stderr
    assert "Its output will be" not in done.stderr


def test_a_batch_system_that_is_not_known_is_refused(programs: SlurmPrograms, file: str):
    done = call(programs, "alloc", file, "--batch-system=none")
    assert done.returncode == 2
    assert "'none' is not" in done.stderr


class ToyQueue(SlurmQueue):
    """A queue that takes every batch script."""

    submit_program = "toysub"
    qcg_pm_command = AllocationQueue.qcg_pm_command

    def submit(self, script: Path, environ: Mapping[str, str], after: str = "") -> str:
        return "t9"

    def view(
        self, allocation_id: str, environ: Mapping[str, str], patience: float = COMMAND_TIMEOUT
    ) -> AllocationView | None:
        return None


class Toy(Slurm):
    """A second batch system."""

    name = "toy"
    label = "Toy"
    queue = ToyQueue()


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with an unfinished job, on a machine that has Slurm and a second batch system."""
    monkeypatch.setitem(sys.modules, "toy_batch_system", SimpleNamespace(SYSTEM=Toy()))
    monkeypatch.setattr(registry, "SYSTEMS", (*registry.SYSTEMS, Registration("toy", "toy_batch_system", ("TOY",))))
    monkeypatch.setenv("PATH", str(SlurmPrograms(tmp_path).path))
    requests = write_requests(tmp_path / "left.json", [job("long", "true", wt="30m")])
    ran = run("qcg-pm", "run", requests, "--id=left", "--time-limit=60s", cwd=tmp_path)
    assert ran.returncode == 4, ran.stdout + ran.stderr
    return tmp_path / ".qcgpjm-service-left"


def resume(run_dir: Path, system: str, *options: str) -> Submission:
    """Resume a run that was submitted to `system` before; the submission."""
    spec = AllocationSpec(
        nodes="2", partition="main", qos="long", gpus_per_node="a100:2", mem="4G", extra_options=["--constraint=fast"]
    )
    directory = run_dir.with_name(".qcgpjm-alloc-left")
    write_chain_state(directory, ChainState(["5"], exit_code=4))
    write_submission(directory, Submission("5", str(run_dir), spec, system))
    done = CliRunner().invoke(alloc.command, [f"--resume={run_dir}", "--time-limit=2h", *options])
    assert done.exit_code == 0, done.output
    print(done.output)
    found = read_submission(run_dir.with_name(".qcgpjm-alloc-left.2"))
    assert found is not None
    return found


def test_a_resumed_run_goes_to_the_batch_system_of_its_last_submission(left: Path):
    submission = resume(left, "toy")
    assert (submission.system, submission.job) == ("toy", "t9")
    assert (submission.spec.qos, submission.spec.extra_options) == ("long", ["--constraint=fast"])


def test_a_submission_without_a_batch_system_is_resumed_in_slurm(left: Path):
    submission = resume(left, "")
    assert (submission.system, submission.job) == ("slurm", "6")
    assert submission.spec.extra_options == ["--constraint=fast"]


def test_another_batch_system_gets_no_words_of_the_last_one(left: Path, capsys: pytest.CaptureFixture[str]):
    submission = resume(left, "toy", "--batch-system=slurm", "--submit-arg=--hold", "--account=me")
    assert (submission.system, submission.job) == ("slurm", "6")
    assert submission.spec == AllocationSpec(
        nodes="2", account="me", gpus_per_node="2", mem="4G", extra_options=["--hold"]
    )
    said = capsys.readouterr().out
    assert (
        "Options of the last submission are for Toy, and are left out:"
        " --partition=main --qos=long --gpus-per-node=a100:2 --constraint=fast\n"
    ) in said
