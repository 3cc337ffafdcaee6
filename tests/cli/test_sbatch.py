"""`qcg-pm sbatch` without Slurm, and the options that it passes on."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.runs.chain_state import ChainState, write_chain_state
from qcg.pilotjob.runs.submissions import Submission, write_submission
from tests.support.pilot import environment, job, run, write_requests
from tests.support.slurm_programs import SlurmPrograms


def sbatch(wd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """On a machine without any programs."""
    return run("qcg-pm", "sbatch", *arguments, cwd=wd, env=environment(PATH=str(wd)))


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write_requests(tmp_path / "jobs.json", [job("a", "true", numCores=100)]).name


def test_a_missing_sbatch_is_an_error_and_leaves_no_files(tmp_path: Path, file: str):
    done = sbatch(tmp_path, file)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: sbatch is not on $PATH; on a machine without Slurm, `qcg-pm run`")
    assert [path.name for path in tmp_path.iterdir()] == [file]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("jobs.json", "--time=soon"), "--time 'soon' is not a time; write it as 1h30m"),
        (("jobs.json", "--nodes=few"), "--nodes 'few' is no number of nodes; write 4, 2-4"),
        (("jobs.json", "--id=a/b"), "leave out the '/'"),
        (("jobs.json", "--", "--array=1-3"), "--array makes no sense for a run"),
        (("jobs.json", "--sbatch-arg=fast"), "'fast' is no option of sbatch"),
        (("jobs.json", "--nodes=0x4"), "--nodes '0' is no number of nodes; write 4, 2-4, or 2x4"),
        (("jobs.json", "--nodes=2x4", "--cores=4"), "--nodes 2x4 says how many cores each node has: leave out --cores"),
        (("jobs.json", "--cores=99"), "jobs.json has 1 problem, checked against 99 cores on 1 node"),
        (("missing.json",), "the request file missing.json cannot be read"),
        (("--resume=.",), "there is no run to resume"),
        ((), "give a request FILE, or a run to continue with --resume PATH"),
    ],
)
def test_invalid_options_are_refused_with_one_sentence(
    tmp_path: Path, file: str, arguments: tuple[str, ...], told: str
):
    done = sbatch(tmp_path, *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_jobs_longer_than_the_allocation_are_reported(tmp_path: Path):
    jobs = [job("long", "true", wt="1h"), job("short", "true", wt="58m"), job("open", "true")]
    write_requests(tmp_path / "jobs.json", jobs)
    done = sbatch(tmp_path, "jobs.json", "--time=1h")
    assert done.returncode == 2
    assert (
        "job 'long' can never run: its wall time of 3600 s is not over within --time 1h, less the 60 s before the end"
        in done.stderr
    )
    assert "jobs.json has 1 problem" in done.stderr
    assert sbatch(tmp_path, "jobs.json", "--time=62", "--dry-run").returncode == 0


def test_a_grace_that_leaves_no_time_for_jobs_is_refused(tmp_path: Path, file: str):
    done = sbatch(tmp_path, file, "--time=5", "--grace=600")
    assert done.returncode == 2
    assert (
        "--time 5 is not longer than --grace 600, the seconds before the end in which no job is started" in done.stderr
    )
    assert sbatch(tmp_path, file, "--time=11", "--grace=600", "--dry-run").returncode == 0


def test_options_of_the_run_that_were_given_are_passed_on_and_no_others(tmp_path: Path, file: str):
    options = ["--on-lost=rerun", "--patience=5", "--no-net", "--report-format=json", "--log=debug", "--system-core"]
    done = sbatch(tmp_path, file, "--dry-run", "--id=mine", *options)
    passed_on = shlex.split(done.stdout.partition(" -- \\\n")[2])
    own = [str(tmp_path / file), f"--wd={tmp_path}", "--id=mine"]
    assert passed_on[:3] == own
    assert sorted(passed_on[3:]) == sorted([*options[:1], "--patience=5.0", *options[2:]])


def test_nodes_by_cores_are_divided_into_two_options(tmp_path: Path):
    write_requests(tmp_path / "jobs.json", [job("a", "true", numCores=8)])
    done = sbatch(tmp_path, "jobs.json", "--dry-run", "--nodes=2x4")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --nodes=2\n" in done.stdout
    assert "#SBATCH --ntasks-per-node=4\n" in done.stdout
    assert "2x4" not in done.stdout


def test_words_after_two_dashes_are_for_sbatch_even_with_resume(tmp_path: Path, file: str):
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


def test_the_next_steps_and_the_reason_to_wait_are_shown(programs: SlurmPrograms, small: str):
    wd = programs.path.parent
    programs.know("6", "PENDING", "PartitionNodeLimit", output=f"{wd}/slurm-6.out")
    done = submit(programs, small, "--nodes=9")
    assert (done.returncode, done.stdout) == (0, "Submitted batch job 6\n")
    for told in (
        "Job 6 is PENDING (PartitionNodeLimit).",
        "It will not start unless that changes: the partition does not give so many nodes",
        "`scancel 6`",
        f"`qcg-pm status --path {wd}`",
        f"Its output will be in {wd}/slurm-6.out.",
    ):
        assert told in done.stderr


def test_a_job_that_only_has_to_wait_is_not_called_blocked(programs: SlurmPrograms, small: str):
    programs.know("6", "PENDING", "Resources")
    assert "will not start" not in submit(programs, small).stderr


def test_lines_of_an_error_of_sbatch_are_separated(programs: SlurmPrograms, small: str):
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


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A run that has a job of two cores and half an hour left."""
    file = write_requests(tmp_path / "left.json", [job("big", "true", numCores=2, wt="30m"), job("done", "true")])
    ran = run("qcg-pm", "run", file, "--id=left", "--nodes=2", "--time-limit=60s", cwd=tmp_path)
    assert ran.returncode == 4, ran.stdout + ran.stderr
    return tmp_path / ".qcgpjm-service-left"


def remember(run_dir: Path, shape: AllocationSpec, job_id: str = "5", chain: ChainState | None = None) -> None:
    """An earlier submission of this run."""
    directory = run_dir.with_name(".qcgpjm-alloc-left")
    write_chain_state(directory, chain or ChainState([job_id], exit_code=4))
    write_submission(directory, Submission(job_id, str(run_dir), shape))


ENOUGH = "--time-limit=20h"


def test_a_resumed_run_keeps_the_spec_of_its_allocations(left: Path, programs: SlurmPrograms):
    remember(
        left,
        AllocationSpec(
            "2", 4, "1h", "main", account="me", max_allocations=3, extra_options=["--constraint=fast", "--hold"]
        ),
    )
    done = submit(programs, "--resume=.", ENOUGH, "--time=2h")
    assert done.returncode == 0, done.stderr
    assert (
        "It asks for --nodes=2 --cores=4 --time=2h --partition=main --account=me --max-allocations=3 --"
        " --constraint=fast; other options are those of the last submission." in done.stderr
    )
    text = (left.parent / ".qcgpjm-alloc-left.2" / "batch.sh").read_text()
    for option in ("--nodes=2", "--ntasks-per-node=4", "--time=02:00:00", "--partition=main", "--constraint=fast"):
        assert f"#SBATCH {option}\n" in text
    assert "--max-allocations=3 " in text
    assert "--hold" not in text
    again = submit(programs, "--resume=.", ENOUGH, "--dry-run", "--nodes=3", "--", "--constraint=slow")
    assert "#SBATCH --nodes=3\n" in again.stdout
    assert "#SBATCH --time=02:00:00\n" in again.stdout
    assert "fast" not in again.stdout


def test_unfinished_jobs_of_a_run_are_checked_against_the_allocation(left: Path, programs: SlurmPrograms):
    remember(left, AllocationSpec("1", 1, "1h"))
    done = submit(programs, "--resume=.", ENOUGH)
    assert done.returncode == 2
    assert "job 'big' can never run: 2 cores requested" in done.stderr
    assert f"{left} has 1 problem, checked against 1 core on 1 node; nothing was submitted" in done.stderr
    short = submit(programs, "--resume=.", ENOUGH, "--cores=2", "--time=20")
    assert "job 'big' can never run: its wall time of 1800 s is not over within --time 20" in short.stderr
    remembered = submit(programs, "--resume=.", "--cores=2")
    assert "is not over within --time-limit 60" in remembered.stderr
    assert not programs.submitted


def test_a_run_with_nothing_left_gets_no_allocation(programs: SlurmPrograms, small: str):
    wd = programs.path.parent
    run("qcg-pm", "run", small, "--id=over", cwd=wd)
    done = submit(programs, "--resume=.")
    assert done.returncode == 0
    assert f"Nothing is left to do in {wd / '.qcgpjm-service-over'}: all of its jobs have ended" in done.stderr
    assert not programs.submitted


def test_a_run_with_active_allocations_gets_no_more(left: Path, programs: SlurmPrograms):
    remember(left, AllocationSpec(), "1", ChainState(["1", "2"]))
    programs.know("1", "RUNNING", nodes="n1")
    programs.know("2", "PENDING", "Dependency")
    done = submit(programs, "--resume=.", ENOUGH)
    assert done.returncode == 2
    assert done.stderr == (
        "Error: Slurm job 1 still holds n1 for this run, and Slurm job 2 (PENDING) will continue this run; wait for"
        " that, or `scancel 1 2` first. Nothing was submitted\n"
    )
    programs.know("1", "CANCELLED")
    programs.know("2", "CANCELLED")
    assert submit(programs, "--resume=.", ENOUGH).returncode == 0
    assert len(programs.submitted) == 1


def test_a_submitted_run_is_mentioned_where_no_manager_is_found(programs: SlurmPrograms, small: str):
    wd = programs.path.parent
    programs.know("6", "PENDING", "Priority")
    submit(programs, small, "--id=mine")
    told = "Run mine was submitted as Slurm job 6 (PENDING, Priority), and has not started."
    for command in (["status"], ["report", "."], ["run", "--resume", "."]):
        done = run("qcg-pm", *command, cwd=wd, env=environment(PATH=str(programs.path)))
        assert done.returncode != 0
        assert told in f"{done.stderr.rstrip()}."
    again = submit(programs, small, "--id=mine")
    assert again.returncode == 2
    assert "Slurm job 6 (PENDING) will continue this run; wait for that, or `scancel 6` first" in again.stderr
    run("qcg-pm", "run", small, "--id=other", cwd=wd)
    after = run("qcg-pm", "status", cwd=wd, env=environment(PATH=str(programs.path)))
    assert "All jobs have ended." in after.stderr
    assert told in after.stderr
