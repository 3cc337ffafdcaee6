"""`qcg-pm sbatch` where there is no Slurm, and what it passes on."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.pilot import environment, job, run, write_requests
from tests.support.slurm_programs import SlurmPrograms


def sbatch(wd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """On a machine without any programs."""
    return run("qcg-pm", "sbatch", *arguments, cwd=wd, env=environment(PATH=str(wd)))


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write_requests(tmp_path / "jobs.json", [job("a", "true", numCores=100)]).name


def test_without_slurm_a_sentence_says_so_and_nothing_is_left(tmp_path: Path, file: str):
    done = sbatch(tmp_path, file)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "Error: there is no program sbatch on $PATH; on a machine without Slurm, `qcg-pm run`"
    )
    assert [path.name for path in tmp_path.iterdir()] == [file]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("jobs.json", "--time=soon"), "--time 'soon' is not a time; write it as 1h30m"),
        (("jobs.json", "--nodes=few"), "--nodes 'few' is no number of nodes; write 4, or 2-4"),
        (("jobs.json", "--id=a/b"), "leave out the '/'"),
        (("jobs.json", "--", "--array=1-3"), "--array makes no sense for a run"),
        (("jobs.json", "--sbatch-arg=fast"), "'fast' is no option of sbatch"),
        (("jobs.json", "--cores=99"), "jobs.json has 1 problem, checked against 99 cores on 1 node"),
        (("missing.json",), "the request file missing.json cannot be read"),
        (("--resume=.",), "there is no run to resume"),
        ((), "give a request FILE, or a run to continue with --resume PATH"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path, file: str, arguments: tuple[str, ...], told: str):
    done = sbatch(tmp_path, *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_jobs_that_take_longer_than_the_allocation_are_told(tmp_path: Path):
    jobs = [job("long", "true", wt="1h"), job("short", "true", wt="59m"), job("open", "true")]
    write_requests(tmp_path / "jobs.json", jobs)
    done = sbatch(tmp_path, "jobs.json", "--time=1h")
    assert done.returncode == 2
    assert "job 'long' can never run: its wall time of 3600 s is not over within --time 1h" in done.stderr
    assert "jobs.json has 1 problem" in done.stderr
    assert sbatch(tmp_path, "jobs.json", "--time=61", "--dry-run").returncode == 0


def test_options_of_the_run_that_were_given_are_passed_on_and_no_others(tmp_path: Path, file: str):
    options = ["--on-lost=rerun", "--patience=5", "--no-net", "--report-format=json", "--log=debug", "--system-core"]
    done = sbatch(tmp_path, file, "--dry-run", "--id=mine", *options)
    passed_on = shlex.split(done.stdout.partition(" -- \\\n")[2])
    own = [str(tmp_path / file), f"--wd={tmp_path}", "--id=mine"]
    assert passed_on[:3] == own
    assert sorted(passed_on[3:]) == sorted([*options[:1], "--patience=5.0", *options[2:]])


def test_what_follows_two_dashes_is_for_sbatch_also_when_a_run_is_continued(tmp_path: Path, file: str):
    run("qcg-pm", "run", write_requests(tmp_path / "small.json", [job("a", "true")]), "--id=old", cwd=tmp_path)
    done = sbatch(tmp_path, "--resume=.", "--dry-run", "--", "--constraint", "fast")
    assert "#SBATCH --constraint=fast\n" in done.stdout
    assert f"--resume {tmp_path}/.qcgpjm-service-old\n" in done.stdout


@pytest.fixture
def programs(tmp_path: Path) -> SlurmPrograms:
    return SlurmPrograms(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> str:
    return write_requests(tmp_path / "small.json", [job("a", "true")]).name


def submit(programs: SlurmPrograms, *arguments: str) -> subprocess.CompletedProcess[str]:
    wd = programs.path.parent
    return run("qcg-pm", "sbatch", *arguments, cwd=wd, env=environment(PATH=str(programs.path)))


def test_what_to_do_next_is_told_and_what_the_job_waits_for(programs: SlurmPrograms, small: str):
    wd = programs.path.parent
    programs.know("6", "PENDING", "PartitionNodeLimit", output=f"{wd}/slurm-6.out")
    done = submit(programs, small, "--nodes=9")
    assert (done.returncode, done.stdout) == (0, "Submitted batch job 6\n")
    for told in (
        "Job 6 is PENDING (PartitionNodeLimit).",
        "It will not start unless that changes: the partition does not give so many nodes",
        "`scancel 6`",
        f"`qcg-pm status --path {wd}`",
        f"What it prints will be in {wd}/slurm-6.out.",
    ):
        assert told in done.stderr


def test_a_job_that_only_has_to_wait_is_not_called_hopeless(programs: SlurmPrograms, small: str):
    programs.know("6", "PENDING", "Resources")
    assert "will not start" not in submit(programs, small).stderr


def test_each_line_that_sbatch_says_stays_apart(programs: SlurmPrograms, small: str):
    programs.refuse("sbatch: error: no  such partition", "", "sbatch: error: failed")
    done = submit(programs, small)
    assert done.stderr == "Error: sbatch refused: sbatch: error: no such partition; sbatch: error: failed\n"


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_submitted(programs: SlurmPrograms, small: str):
    wd = programs.path.parent
    done = submit(programs, small, "--output=logs/%j.out")
    assert done.returncode == 2
    assert done.stderr == f"Error: --output logs/%j.out: there is no directory {wd / 'logs'}; make it first\n"
    assert not programs.submitted
    (wd / "logs").mkdir()
    assert submit(programs, small, "--output=logs/%j.out").returncode == 0
