"""Commands on runs without a manager: ended runs, crashed runs, and both in one directory."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.client_helpers import Names
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.api.target import Target
from qcg.pilotjob.cli.main import main
from qcg.pilotjob.cli.output_files import Follower
from qcg.pilotjob.cli.service_runner import check_single_task
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.metadata import NODES_OF_ALLOCATION, OPTIONS, PUT_VALUE
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.manager.run_result import ManagerEnd, RunResult
from qcg.pilotjob.runs.guard import announce
from qcg.pilotjob.runs.unfinished import read_unfinished
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import AgentsContact, ClientsContact
from tests.support.pilot import COMMANDS, job, run, start, write_requests
from tests.support.waiting import wait_for

GATE = "until [ -e go ]; do sleep 0.02; done"


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of a run that has ended."""
    wd = tmp_path_factory.mktemp("over")
    jobs = [
        job("talks", "echo", "hello", stdout="talks.out", stderr="talks.err"),
        job("bad", script="echo no input >&2; exit 3", stdout="bad.out", stderr="bad.err"),
        job("after", "true", after=["bad"]),
        job("its", "bash", "-c", "exit ${it}", iteration=3),
    ]
    path = write_requests(wd / "r.json", jobs, {"request": "cancelJob", "jobNames": ["nobody"]})
    run("qcg-pm", "run", path, "--wd", wd, "--nodes", "2", "--id", "over")
    return wd


@pytest.fixture(scope="module")
def died(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of a run whose manager was killed; its agent and its job are gone, too."""
    wd = tmp_path_factory.mktemp("died")
    die(wd, "dead")
    return wd


def die(wd: Path, name: str) -> Path:
    jobs = [job("gate", "bash", "-c", GATE, stdout=f"{name}.out"), job("last", "true", after=["gate"])]
    path = write_requests(wd / f"{name}.json", jobs)
    with start("qcg-pm", "run", path, "--wd", wd, "--nodes", "2", "--id", name, "--agent-linger", "0") as manager:
        wait_for(lambda: (wd / f"{name}.out").exists(), what="the first job")
        run_dir = wd / f".qcgpjm-service-{name}"
        wait_for(lambda: is_known_to_run(run_dir), what="its start to be on disk")
        manager.kill()
        manager.communicate()
    (wd / "go").touch()
    wait_for(lambda: not (run_dir / "agent-local.json").exists(), what="the agent to end")
    (wd / "go").unlink()
    return run_dir


def is_known_to_run(run_dir: Path) -> bool:
    with snapshot(run_dir / "registry.sqlite") as connection:
        return any(record.state is State.EXECUTING for record in queries.attempt_records(connection))


def pm(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="qcg-pm")


# -- a run that has ended ---------------------------------------------------------------------------------------------


def test_jobs_of_an_ended_run_are_listed(over: Path):
    done = pm("jobs", "-p", over)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "name   state    message",
        "talks  SUCCEED",
        "bad    FAILED   exit code 3",
        "after  OMITTED  it waits for 'bad', which is FAILED",
        "its    FAILED   2 of 3 iterations failed",
    ]
    state = f"No manager is running; this is the recorded state of {over}/.qcgpjm-service-over."
    assert done.stderr == f"{state} All jobs have ended.\n"
    told = json.loads(pm("jobs", "-p", over, "--json", "its:*", "-s", "failed").stdout)["jobs"]
    assert [told[name].pop("messages") for name in ("its:1", "its:2")] == ["exit code 1", "exit code 2"]
    assert told == {
        f"its:{code}": {"state": "FAILED", "status": "FAILED", "message": f"exit code {code}"} for code in (1, 2)
    }


def test_info_on_an_ended_run_shows_details_of_its_jobs(over: Path):
    lines = pm("info", "-i", "bad", "its", "-p", over).stdout.splitlines()
    assert "    exit_code: 3" in lines
    assert "    iterations: start 0, stop 3, total 3, finished 3, failed 2" in lines
    assert "    its:2 (FAILED)" in lines
    assert pm("why", "bad", "after", "-p", over).stdout.splitlines() == [
        f"bad FAILED: exit code 3; the end of {over}/bad.err:",
        "    no input",
        "after OMITTED: it was never started: it waits for 'bad', which is FAILED",
    ]


def test_logs_shows_output_of_an_ended_run(over: Path):
    assert pm("logs", "talks", "-p", over).stdout == "hello\n"
    assert pm("logs", "-f", "talks", "-p", over).stdout == "hello\n"
    done = pm("logs", "bad", "-p", over)
    assert done.stdout == ""
    assert "see: qcg-pm logs --stderr bad" in done.stderr


class Leaving(Manager):
    """A manager that ends after its first answer."""

    def __init__(self) -> None:
        pass

    def status(self, names: Names) -> dict[str, Any]:
        return {"jobs": {"talks": {"status": 0, "data": {"status": "SUCCEED"}}}}

    def send_request(self, request: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionError("the service is gone")


def test_output_is_shown_when_the_manager_ends_before_it_answers(over: Path, capsys: pytest.CaptureFixture[str]):
    Follower(Leaving(), "talks", over / ".qcgpjm-service-over").follow("stdout", None)
    assert capsys.readouterr().out == "hello\n"


def test_the_registry_answers_when_a_manager_ends_while_a_command_connects(over: Path, monkeypatch: pytest.MonkeyPatch):
    run_dir = over / ".qcgpjm-service-over"

    def gone(target: Target, cfg: dict[str, Any], *, ends: bool) -> Manager:
        contact.remove(run_dir)
        raise ConnectionError("the service is gone")

    monkeypatch.setattr(Manager, "at", gone)
    for line, said in ((["logs", "-f", "talks"], "hello\n"), (["jobs", "talks"], "name   state\ntalks  SUCCEED\n")):
        announce(run_dir, AgentsContact("tcp://127.0.0.1:1", "", "", ""), ClientsContact("tcp://127.0.0.1:1"))
        done = pm(*line, "-p", over)
        assert (done.exit_code, done.stdout) == (0, said), done.output
    announce(run_dir, AgentsContact("tcp://127.0.0.1:1", "", "", ""), ClientsContact("tcp://127.0.0.1:1"))
    assert pm("wait", "-p", over).exit_code == 2, "nobody is there to wait for"


def test_the_states_of_an_ended_run_are_counted(over: Path):
    done = pm("status", "-p", over)
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["total", "waiting", "running", "succeeded", "failed", "cancelled", "omitted"],
        ["jobs", "4", "0", "0", "1", "2", "0", "1"],
        ["iterations", "3", "0", "0", "1", "2", "0", "0"],
    ]


def test_an_unknown_name_in_an_ended_run_is_an_error_with_a_similar_name(over: Path):
    for command in ("info", "why", "logs", "jobs"):
        done = pm(command, "talk", "-p", over)
        assert done.exit_code == 1
        assert "there is no job 'talk'; did you mean 'talks'?" in done.stderr, command


def test_a_run_whose_requests_were_refused_hides_no_other(tmp_path: Path):
    path = write_requests(tmp_path / "r.json", [job("good", "true", stdout="good.out")])
    assert run("qcg-pm", "run", path, "--wd", tmp_path, "--nodes", "2", "--id", "real").returncode == 0
    mistaken = write_requests(tmp_path / "typo.json", [{"name": "typo", "execution": {"exe": "true"}}])
    refused = ("--file-path", mistaken, "--wd", tmp_path, "--nodes", "2", "--id", "typo")
    assert run("qcg-pm-service", *refused).returncode == 1
    done = pm("why", "good", "nobody", "-p", tmp_path)
    assert "good SUCCEED" in done.stdout
    assert f"this is the recorded state of {tmp_path}/.qcgpjm-service-real." in done.stderr
    assert f"1 other run is in {tmp_path}: see --path" in done.stderr
    assert f"Run {tmp_path}/.qcgpjm-service-real" in pm("report", tmp_path).stdout


def test_commands_that_need_a_manager_are_refused_with_advice_of_their_own(over: Path):
    run_dir = f"{over}/.qcgpjm-service-over"
    serve = f"`qcg-pm-service --net --resume {run_dir}`"
    advice = {
        "wait": f"Jobs that are left end only in a run that continues: `qcg-pm run --resume {run_dir}`.",
        "cancel a": f"To cancel jobs that are left, open it with {serve}.",
        "submit x.json": f"To submit jobs to it, open it with {serve}; for a new run: `qcg-pm-service --net`.",
        "finish": "There is no manager to end.",
        "resources": f"To open it again: {serve}.",
        "release a": f"To release held jobs and continue: `qcg-pm run --resume {run_dir} --release`.",
        "rerun a": f"To run its failed jobs again: `qcg-pm run --resume {run_dir} --rerun failed`; for some of them,"
        f" open it with {serve}, and give qcg-pm rerun NAMES then.",
    }
    for line, sentence in advice.items():
        done = pm(*line.split(), "-p", over)
        assert (done.exit_code, done.stderr) == (
            2,
            f"Error: No manager is running for {run_dir}: the last one has ended. {sentence}\n",
        )


@pytest.mark.parametrize("line", [["status"], ["jobs"], ["rerun", "a"], ["finish"]])
def test_in_a_directory_without_runs_the_advice_is_to_start_one(tmp_path: Path, line: list[str]):
    done = pm(*line, "-p", tmp_path)
    assert done.exit_code == 2
    assert f"in {tmp_path}. Start a run there with `qcg-pm run FILE`, or name the directory of one" in done.stderr


def test_an_export_without_streamed_output_says_which_jobs_have_it(over: Path, tmp_path: Path):
    done = pm("logs", "--export", tmp_path / "out", "-p", over)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "nothing to export" in done.stderr
    assert "--stream-output" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_report_on_a_directory_without_runs_says_so(tmp_path: Path):
    done = pm("report", tmp_path)
    assert (done.exit_code, done.stderr) == (
        2,
        f"Error: There is no run in {tmp_path}; give the directory of a run, or the one that it worked in\n",
    )


# -- a run that has died ----------------------------------------------------------------------------------------------


def test_a_crashed_run_shows_unfinished_jobs_and_the_resume_hint(died: Path):
    done = pm("jobs", "-p", died)
    assert done.stdout.splitlines() == ["name  state", "gate  EXECUTING", "last  QUEUED"]
    run_dir = f"{died}/.qcgpjm-service-dead"
    assert done.stderr == (
        f"No manager is running (the last one has died); this is the recorded state of {run_dir}."
        f" 2 jobs have not ended. Continue: `qcg-pm run --resume {run_dir}`.\n"
    )
    told = pm("why", "gate", "last", "-p", died).stdout.splitlines()
    assert told[0].startswith("gate EXECUTING: it was on n0[0] (pid ")
    assert (
        told[1]
        == "last QUEUED: it had not been started when its manager ended; a manager that resumes the run starts it"
    )
    assert pm("logs", "gate", "-p", died).exit_code == 0


def test_a_run_that_died_is_named_beside_a_newer_one(died: Path, tmp_path: Path):
    wd = tmp_path / "both"
    shutil.copytree(died, wd)
    left = f"{wd}/.qcgpjm-service-dead was left by its manager with 2 jobs not ended"
    path = write_requests(wd / "new.json", [job("new", "true")])
    done = run("qcg-pm", "run", path, "--wd", wd, "--nodes", "1", "--id", "new")
    assert done.returncode == 0
    assert f"Note: {left}; continue with `qcg-pm run --resume" in done.stderr
    assert left in pm("report", wd).stderr
    assert left in pm("jobs", "-p", wd).stderr
    assert left in pm("wait", "-p", wd).stderr
    assert pm("jobs", "-p", wd).stdout.splitlines() == ["name  state", "new   SUCCEED"]
    (wd / "go").touch()
    resumed = run("qcg-pm", "run", "--resume", wd)
    assert resumed.stderr.startswith(f"Resuming {wd}/.qcgpjm-service-dead, the newest run with unfinished jobs.\n")
    assert f"Run {wd}/.qcgpjm-service-dead" in resumed.stdout
    again = run("qcg-pm", "run", path, "--wd", wd, "--nodes", "1")
    assert "Note" not in again.stderr


def test_several_runs_that_died_are_named_in_one_note_and_only_when_a_new_one_begins(died: Path, tmp_path: Path):
    wd = tmp_path / "several"
    shutil.copytree(died, wd)
    shutil.copytree(wd / ".qcgpjm-service-dead", wd / ".qcgpjm-service-dead2")
    wrong = run("qcg-pm", "run", "missing.json", "--wd", wd)
    assert wrong.returncode == 2
    assert "Note" not in wrong.stderr
    path = write_requests(wd / "new.json", [job("new", "true")])
    done = run("qcg-pm", "run", path, "--wd", wd, "--nodes", "1")
    [note] = [line for line in done.stderr.splitlines() if "was left by its manager" in line]
    assert note.startswith("Note: ")
    assert f". So were {wd}/.qcgpjm-service-dead" in note


def test_a_run_whose_jobs_outlive_their_manager_is_named_with_their_number(tmp_path: Path):
    path = write_requests(tmp_path / "r.json", [job("gate", "bash", "-c", GATE, stdout="gate.${it}", iteration=2)])
    arguments = ("qcg-pm", "run", path, "--wd", tmp_path, "--nodes", "2")
    with start(*arguments, "--id", "first", "--agent-linger", "0") as manager:
        wait_for(lambda: (tmp_path / "gate.0").exists() and (tmp_path / "gate.1").exists(), what="both iterations")
        run_dir = tmp_path / ".qcgpjm-service-first"
        wait_for(lambda: is_known_to_run(run_dir), what="their start to be on disk")
        manager.kill()
        manager.communicate()
    other = write_requests(tmp_path / "other.json", [job("a", "true")])
    done = run("qcg-pm", "run", other, "--wd", tmp_path, "--nodes", "1", "--id", "second")
    assert (
        f"Note: 2 jobs and iterations of {run_dir} still run although the manager has died, and write into this"
        " directory, too. To continue that run instead of a new one: Ctrl-C, then"
        f" `qcg-pm run --resume {run_dir}`.\n"
    ) in done.stderr
    (tmp_path / "go").touch()
    wait_for(lambda: not (run_dir / "agent-local.json").exists(), what="the agent to end")
    assert "still run" not in run("qcg-pm", "run", other, "--wd", tmp_path, "--nodes", "1", "--id", "third").stderr


def in_an_allocation(died: Path, wd: Path) -> Path:
    """The run that died, as if its manager had had nodes of Slurm job 7."""
    shutil.copytree(died, wd)
    run_dir = wd / ".qcgpjm-service-dead"
    with closing(sqlite3.connect(run_dir / "registry.sqlite")) as connection, connection:
        options = OPTIONS.read(connection)
        assert options is not None
        connection.execute(PUT_VALUE, (NODES_OF_ALLOCATION.name, "7"))
        connection.execute(PUT_VALUE, (OPTIONS.name, OPTIONS.encode(msgspec.structs.replace(options, nodes=None))))
    return run_dir


def outside() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}


def test_a_run_of_an_allocation_resumes_in_another_one_or_with_resources_local(died: Path, tmp_path: Path):
    wd = tmp_path / "cluster"
    run_dir = in_an_allocation(died, wd)
    how = f"`qcg-pm sbatch --resume {run_dir}` (inside an allocation: `qcg-pm run --resume {run_dir}`)"
    assert f"continue with {how}." in pm("report", wd).stderr
    done = run("qcg-pm", "run", "--resume", wd, env=outside())
    assert (done.returncode, done.stderr) == (
        2,
        f"Error: this run was in allocation 7, and this is no allocation: continue with {how},"
        " or give --resources local if you mean this machine\n",
    )
    (wd / "go").touch()
    done = run("qcg-pm", "run", "--resume", wd, "--resources", "local", env=outside())
    assert f"Run {run_dir}" in done.stdout
    assert done.returncode != 2, done.stderr
    assert not read_unfinished(run_dir).allocation


def test_no_resume_hint_is_printed_when_another_allocation_continues(tmp_path: Path):
    counts = [1, 0, 2, 0, 0, 0, 0]
    ending = RunResult(run_dir=tmp_path, counts=counts, end=ManagerEnd(Cause.TIME, "the time is over"), allocation="7")
    assert ending.last_line(followed=True) == "3 jobs are left, because the time is over."
    assert ending.last_line() == (
        f"3 jobs are left, because the time is over. Continue with: qcg-pm sbatch --resume {tmp_path}"
        f" (inside an allocation: qcg-pm run --resume {tmp_path})"
    )


# -- one of several tasks of srun -------------------------------------------------------------------------------------

TASK = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}


@pytest.mark.parametrize("command", ["qcg-pm run r.json", "qcg-pm-service --file-path r.json"])
def test_one_of_several_tasks_of_srun_runs_nothing(command: str, tmp_path: Path):
    write_requests(tmp_path / "r.json", [job("a", "touch", "ran")])
    program, *arguments = command.split()
    done = run(program, *arguments, cwd=tmp_path, env={**outside(), **TASK})
    assert done.returncode == 2
    assert "this is task 1 of the 2 that srun has started, and each of them would run every job: call it without" in (
        done.stderr
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({"SLURM_STEP_NUM_TASKS": "4"}, id="a job of a pilot with Slurm's variables"),
        pytest.param({**TASK, "SLURM_STEP_NUM_TASKS": "1"}, id="one task"),
        pytest.param({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, id="a batch script from such a job"),
    ],
)
def test_a_single_task_of_srun_or_another_environment_is_accepted(environ: dict[str, str]):
    check_single_task("auto", environ)
    check_single_task("local", TASK)


# -- what cannot be looked at -----------------------------------------------------------------------------------------


def without_privileges(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`qcg-pm` without the privileges of root, so that file permissions apply."""
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"] if os.geteuid() == 0 else []
    line = [*drop, sys.executable, *COMMANDS["qcg-pm"], *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("line", ["report", "jobs -p", "wait -p", "run --resume"])
def test_a_run_that_cannot_be_read_is_an_error_message(line: str, tmp_path: Path):
    run_dir = tmp_path / ".qcgpjm-service-x"
    run_dir.mkdir(mode=0o000)
    for place in (tmp_path, run_dir):
        done = without_privileges(*line.split(), place)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("Error: ")
        assert "Permission denied" in done.stderr
        assert "Traceback" not in done.stderr
    tmp_path.chmod(0o000)
    try:
        done = without_privileges(*line.split(), tmp_path)
    finally:
        tmp_path.chmod(0o700)
    assert done.returncode == 2
    assert "Permission denied" in done.stderr


# -- a job of Slurm that has been queued again ------------------------------------------------------------------------


def test_a_job_that_slurm_requeues_continues_the_run_that_it_had_started(tmp_path: Path):
    script = "echo ran >> ran.$0; [ $0 != 1 ] || [ -e go ] || kill -KILL $(<pid); sleep 0.1"
    path = write_requests(tmp_path / "r.json", [job("a", "bash", "-c", script, "${it}", iteration=3)])
    other = write_requests(tmp_path / "other.json", [job("b", "true")])

    def again(restarts: int, file: Path, job_id: str = "7") -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "SLURM_JOB_ID": job_id, "SLURM_RESTART_COUNT": str(restarts)}
        line = 'echo $$ > pid; exec "$@" --resources local --on-lost rerun --agent-linger 0 --nodes 1'
        return subprocess.run(
            ["bash", "-c", line, "bash", sys.executable, *COMMANDS["qcg-pm"], "run", file],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert again(0, path).returncode == -9
    (tmp_path / "go").touch()
    wait_for(lambda: not list(tmp_path.glob(".qcgpjm-*/agent-*.json")), what="the agent to end")
    done = again(1, path)
    [run_dir] = tmp_path.glob(".qcgpjm-service-*")
    assert (done.returncode, f"continuing with {run_dir}" in done.stderr) == (0, True), done.stderr
    assert (tmp_path / "ran.0").read_text() == "ran\n"
    assert again(1, other).returncode == again(0, path).returncode == again(1, path, "8").returncode == 0
    assert len(list(tmp_path.glob(".qcgpjm-service-*"))) == 4
