"""Commands on managers started in other terminals, which may end during a command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from qcg.pilotjob.cli.main import main
from tests.support.pilot import environment, job, run, start, write_requests
from tests.support.waiting import wait_for

GATE = "until [ -e go ]; do sleep 0.02; done"


def pm(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="qcg-pm")


@contextmanager
def running(wd: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`qcg-pm run` with a job that waits for the file `go`, and one after it."""
    path = write_requests(
        wd / "requests.json",
        [job("gate", "bash", "-c", f"{GATE}; echo through", stdout="gate.out"), job("last", "true", after=["gate"])],
    )
    command = start("qcg-pm", "run", path, "--nodes", "2", "--wd", wd, "--agent-linger", "1", *options)
    with command as process:
        try:
            wait_for(lambda: (wd / "gate.out").exists(), what="the first job")
            yield process
        finally:
            (wd / "go").touch()
            process.communicate()


def test_a_run_can_be_inspected_and_extended_from_another_terminal(tmp_path: Path):
    with running(tmp_path) as process:
        wait_for(lambda: "EXECUTING" in pm("jobs", "-p", tmp_path).stdout, what="the manager to hear of the start")
        assert pm("jobs", "-p", tmp_path).stdout.splitlines() == ["name  state", "gate  EXECUTING", "last  QUEUED"]
        assert pm("why", "last", "-p", tmp_path).stdout == "last QUEUED: it waits for 'gate', which is EXECUTING\n"
        (run_dir,) = tmp_path.glob(".qcgpjm-service-*")
        done = pm("submit", "-p", run_dir, "--wd", tmp_path, "--name", "more", "--after", "last", "--", "true")
        assert done.output == "more\n"
        (tmp_path / "go").touch()
        assert process.wait(60) == 0
    assert "more (SUCCEED)" in (tmp_path / "jobs.report").read_text()


def test_commands_report_a_run_without_network_interface(tmp_path: Path):
    with running(tmp_path, "--no-net"):
        done = pm("status", "-p", tmp_path)
    assert done.exit_code == 2
    assert "has no network interface" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["wait"], "2 SUCCEED\n"), (["wait", "last"], "1 SUCCEED\n"), (["logs", "-f", "gate"], "through\n")],
)
def test_waiting_for_the_last_job_of_a_run_ends_well_though_the_run_ends_with_it(
    arguments: list[str], said: str, tmp_path: Path
):
    with running(tmp_path) as process, start("qcg-pm", *arguments, "-p", tmp_path) as waiting:
        wait_for(lambda: _waits(waiting.pid, tmp_path / "gate.out"), what="it to have been answered, and to wait")
        (tmp_path / "go").touch()
        out, err = waiting.communicate(timeout=60)
        assert (waiting.returncode, out, err) == (0, said, "")
        assert process.wait(60) == 0


@pytest.mark.parametrize("command", ["wait gate", "logs -f gate"])
def test_waiting_for_a_killed_manager_ends_with_2_and_the_resume_hint(command: str, tmp_path: Path):
    with running(tmp_path) as process, start("qcg-pm", *command.split(), "-p", tmp_path) as waiting:
        (run_dir,) = tmp_path.glob(".qcgpjm-service-*")
        wait_for(lambda: _connections(waiting.pid) >= 1, what="it to be connected")
        process.kill()
        out, err = waiting.communicate(timeout=60)
        assert (waiting.returncode, out) == (2, "")
        assert err.startswith("Error: ")
        assert "has died" in err
        assert f"2 jobs have not ended, and agents are still running. Continue: `qcg-pm run --resume {run_dir}`" in err
        assert "Traceback" not in err
        (tmp_path / "go").touch()
    wait_for(lambda: not (run_dir / "agent-local.json").exists(), what="the agent to end")


@pytest.mark.parametrize("command", ["wait gate", "logs -f gate", "submit"])
def test_an_interrupt_ends_a_command_with_130_and_says_that_jobs_continue(command: str, tmp_path: Path):
    (tmp_path / "FILE").write_text(json.dumps([job("more", "true", after=["gate"])]))
    line = ["submit", "--wait", str(tmp_path / "FILE")] if "submit" in command else command.split()
    with running(tmp_path), start("qcg-pm", *line, "-p", tmp_path) as waiting:
        wait_for(lambda: _connections(waiting.pid) >= 1, what="it to be connected")
        waiting.send_signal(signal.SIGINT)
        _, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, err) == (130, "interrupted; the jobs continue (`qcg-pm cancel` cancels jobs)\n")


WHILE_IT_CONNECTS = """
import os, signal, zmq
make = zmq.Context.socket
def interrupted(*arguments):
    socket = make(*arguments)
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000): pass
    return socket
zmq.Context.socket = interrupted
"""


def test_an_interrupt_while_a_command_connects_ends_it_too(tmp_path: Path):
    """An exception would leave the command in a destructor of the library, which waits forever for an open socket."""
    (tmp_path / "sitecustomize.py").write_text(WHILE_IT_CONNECTS)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    with running(tmp_path):
        done = run("qcg-pm", "status", "-p", tmp_path, env=environment(PYTHONPATH=path), timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_manager_that_does_not_answer_is_not_reported_as_ended(tmp_path: Path):
    with running(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        done = pm("status", "-p", tmp_path)
        process.send_signal(signal.SIGCONT)
    assert done.exit_code == 2
    assert f"(pid {process.pid} on " in done.stderr
    assert "is there, but does not answer" in done.stderr


def test_a_manager_without_contact_file_is_not_reported_as_ended(tmp_path: Path):
    with running(tmp_path) as process:
        (contact,) = tmp_path.glob(".qcgpjm-service-*/contact.json")
        kept = contact.read_bytes()
        contact.unlink()
        for line in (["status"], ["jobs"], ["finish"]):
            done = pm(*line, "-p", tmp_path)
            assert done.exit_code == 2
            assert f"a manager (pid {process.pid}) is at work in {contact.parent}" in done.stderr
        contact.write_bytes(kept)
        contact.chmod(0o600)


def test_finish_ends_a_run_and_returns_when_it_is_over(tmp_path: Path):
    with running(tmp_path) as process:
        done = pm("finish", "-p", tmp_path)
        assert (done.exit_code, done.output) == (0, "the manager has ended\n")
        assert not list(tmp_path.glob(".qcgpjm-service-*/contact.json"))
        assert process.wait(60) == 1
    assert "gate (CANCELED)" in (tmp_path / "jobs.report").read_text()
    assert "All jobs have ended." in pm("status", "-p", tmp_path).stderr


def test_finish_when_done_ends_a_service_when_its_jobs_have_ended(tmp_path: Path):
    with start("qcg-pm-service", "--net", "--nodes", "1", "--wd", tmp_path) as service:
        wait_for(lambda: list(tmp_path.glob(".qcgpjm-service-*/contact.json")), what="the service")
        wait_for(lambda: pm("status", "-p", tmp_path).exit_code == 0, what="the service to answer")
        pm("submit", "-p", tmp_path, "--wd", tmp_path, "--name", "gate", "--", "bash", "-c", GATE)
        done = pm("finish", "--when-done", "-p", tmp_path)
        assert (done.exit_code, done.output) == (0, "the manager ends as soon as every job has ended\n")
        assert service.poll() is None
        more = pm("submit", "-p", tmp_path, "--wd", tmp_path, "--name", "more", "--", "true")
        assert more.output == "more\n", "until then it takes more jobs"
        (tmp_path / "go").touch()
        assert service.wait(60) == 0
    assert "more (SUCCEED)" in (tmp_path / "jobs.report").read_text()


def test_a_job_talks_to_its_own_manager(tmp_path: Path):
    line = "import sys; from qcg.pilotjob.cli.main import main; main(sys.argv[1:], prog_name='qcg-pm')"
    path = write_requests(
        tmp_path / "requests.json",
        [job("parent", sys.executable, "-c", line, "submit", "--name", "child", "--", "echo", "hello", wd="sub")],
    )
    done = run("qcg-pm", "run", path, "--wd", tmp_path, "--nodes", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "sub/child.out").read_text() == "hello\n"


def _waits(pid: int, output: Path) -> bool:
    """Whether the command listens to events, or has the output of the job open."""
    return _connections(pid) >= 2 or str(output) in _opened(pid)


def _connections(pid: int) -> int:
    """The number of connections of a process: one for requests, one for events."""
    return sum(target.startswith("socket:") for target in _opened(pid))


def _opened(pid: int) -> list[str]:
    try:
        return [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except FileNotFoundError:
        return []
