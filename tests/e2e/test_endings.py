"""Managers end, and the next one continues: signals, closed terminals, `finish`, crashes during a shutdown."""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.agent.pidfile import read_agent_pid, signal_agent
from qcg.pilotjob.api.manager import Manager
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.snapshot import snapshot
from tests.support.crashing import Crashing
from tests.support.pilot import COMMANDS, Run, job, run, start, write_requests
from tests.support.processes import is_alive
from tests.support.serving import served
from tests.support.waiting import wait_for

WAITS = "echo x >> $0.starts; until [ -e go ]; do sleep 0.05; done"
"""A job that runs until the file `go` is there, and counts its starts."""
SURVIVES_SIGTERM = f"exec 2> /dev/null; trap 'touch $0.terminated' TERM; {WAITS}"
"""As above, but the job ignores SIGTERM. The shell reports the end of its `sleep`, which is no output of the job."""


def waits(name: str, script: str = WAITS, **more: Any) -> dict[str, Any]:
    return job(name, "bash", "-c", script, name, **more)


def starts(wd: Path, name: str) -> int:
    path = wd / f"{name}.starts"
    return len(path.read_text().split()) if path.exists() else 0


def states(wd: Path) -> dict[str, str]:
    """The states in the registry."""
    lines = run("qcg-pm", "jobs", "--path", wd).stdout.splitlines()[1:]
    return {line.split()[0]: line.split()[1] for line in lines}


def carry_out(command: str, wd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command that another command printed in its last line."""
    program, *arguments = shlex.split(command)
    return run(program, *arguments, cwd=wd)


# -- a closed terminal ------------------------------------------------------------------------------------------------


def test_a_closed_terminal_leaves_the_run_to_be_resumed(tmp_path: Path):
    write_requests(tmp_path / "r.json", [waits("a"), job("b", "true", after="a")])
    terminal, end = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    line = [sys.executable, *COMMANDS["qcg-pm"], "run", "r.json", "--nodes", "2"]
    manager = subprocess.Popen(line, cwd=tmp_path, stdin=end, stdout=end, stderr=end, preexec_fn=take_terminal)
    os.close(end)
    wait_for(lambda: starts(tmp_path, "a"), what="the job to start")
    os.close(terminal)
    assert manager.wait(60) == 128 + signal.SIGHUP
    log = (tmp_path / "service.log").read_text()
    assert "SIGHUP: stopping. 1 running attempt has 5 s to end (the next signal kills it); 2 jobs are left for" in log
    assert "2 jobs are left, because the manager got SIGHUP. Continue with: qcg-pm run --resume " in log
    assert states(tmp_path) == {"a": "QUEUED", "b": "QUEUED"}
    (tmp_path / "go").touch()
    assert run("qcg-pm", "run", "--resume", ".", cwd=tmp_path).returncode == 0
    assert starts(tmp_path, "a") == 2


def test_under_nohup_a_closed_terminal_has_no_effect(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [waits("a")])

    def ignore_hangup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    manager = start("qcg-pm", "run", requests, cwd=tmp_path, preexec_fn=ignore_hangup)
    wait_for(lambda: starts(tmp_path, "a"), what="the job to start")
    manager.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    _, err = manager.communicate(timeout=60)
    assert manager.returncode == 0, err
    assert starts(tmp_path, "a") == 1


# -- finish -----------------------------------------------------------------------------------------------------------


def test_finish_cancels_running_jobs_and_the_last_line_continues_with_the_others(tmp_path: Path):
    with served(tmp_path, "--nodes", "2") as service:
        service.submit(
            waits("running", numCores=2),
            waits("waiting"),
            job("dependent", "true", after="waiting"),
            job("never", "true", after="running"),
        )
        wait_for(lambda: starts(tmp_path, "running"), what="the first job to start")
        service.wait("running", "EXECUTING")
        finished = run("qcg-pm", "finish", "--path", tmp_path)
        assert finished.returncode == 0, finished.stderr
        _, err = service.process.communicate(timeout=60)
        assert service.process.returncode == 4
    command = f"qcg-pm-service --net --resume {service.run_dir}"
    assert err.splitlines()[-1] == (
        f"2 jobs are left, because the manager was told to finish. Continue with: {command}"
    )
    assert finished.stderr.splitlines()[-1] == f"2 jobs are left. Continue with: {command}"
    assert states(tmp_path) == {
        "running": "CANCELED",
        "waiting": "QUEUED",
        "dependent": "QUEUED",
        "never": "OMITTED",
    }
    (tmp_path / "go").touch()
    program, *arguments = shlex.split(command)
    again = start(program, *arguments)
    wait_for(lambda: (service.run_dir / "contact.json").exists(), what="the next manager")
    assert run("qcg-pm", "wait", "--path", tmp_path).returncode in (0, 1)
    assert run("qcg-pm", "finish", "--path", tmp_path).returncode == 0
    _, err = again.communicate(timeout=60)
    assert again.returncode == 1, "one job was cancelled, and one omitted; none is left"
    assert "left" not in err
    assert states(tmp_path)["dependent"] == "SUCCEED"
    assert starts(tmp_path, "running") == starts(tmp_path, "waiting") == 1


def test_finish_with_cancel_leaves_no_job(tmp_path: Path):
    with served(tmp_path, "--nodes", "2") as service:
        service.submit(waits("running", numCores=2), waits("waiting"), job("dependent", "true", after="waiting"))
        service.wait("running", "EXECUTING")
        finished = run("qcg-pm", "finish", "--cancel", "--path", tmp_path)
        assert (finished.returncode, finished.stderr) == (0, "")
        _, err = service.process.communicate(timeout=60)
        assert service.process.returncode == 1
        assert "left" not in err
    assert set(states(tmp_path).values()) == {"CANCELED"}
    again = run("qcg-pm", "run", "--resume", tmp_path)
    assert "There was nothing to continue" in again.stderr


# -- a crash in the middle --------------------------------------------------------------------------------------------


def tell_to_finish(wd: Path) -> None:
    with Manager.of_run(wd, {"log_file": ""}) as manager:
        manager.finish()


def killed_in_shutdown(tmp_path: Path, end: Any) -> Crashing:
    """A run whose manager was killed after it had begun to shut down; `stubborn` is still in its grace period."""
    jobs = [waits("stubborn", SURVIVES_SIGTERM), waits("waiting", numCores=2)]
    crashing = Crashing(tmp_path, write_requests(tmp_path / "r.json", jobs), "--nodes", "2")
    manager = crashing.start()
    wait_for(lambda: starts(tmp_path, "stubborn"), what="the first job to start")
    end(manager)
    wait_for(lambda: "1 running attempt is ended" in crashing.log_so_far(), what="the shutdown to begin")
    wait_for((tmp_path / "stubborn.terminated").exists, what="the agent to end the first job")
    crashing.kill_manager()
    return crashing


def test_a_manager_that_dies_while_a_signal_ends_it_loses_nothing_and_runs_nothing_twice(tmp_path: Path):
    crashing = killed_in_shutdown(tmp_path, lambda manager: manager.send_signal(signal.SIGINT))
    (tmp_path / "go").touch()
    done = crashing.finish()
    assert done.returncode == 0, done.stderr
    assert Run(tmp_path, done).states == {"stubborn": "SUCCEED", "waiting": "SUCCEED"}
    assert (starts(tmp_path, "stubborn"), starts(tmp_path, "waiting")) == (2, 1)
    crashing.check_nothing_left()


def test_a_manager_that_dies_during_finish_has_cancelled_running_jobs_and_kept_the_rest(tmp_path: Path):
    crashing = killed_in_shutdown(tmp_path, lambda manager: tell_to_finish(tmp_path))
    (tmp_path / "go").touch()
    done = crashing.finish()
    assert Run(tmp_path, done).states == {"stubborn": "CANCELED", "waiting": "SUCCEED"}
    assert (starts(tmp_path, "stubborn"), starts(tmp_path, "waiting")) == (1, 1)
    crashing.check_nothing_left()


def test_after_a_crash_of_the_machine_jobs_of_the_last_second_run_again_and_earlier_ones_are_lost(tmp_path: Path):
    """Also with `--on-lost fail`: the disk has the files from before the start of the job."""

    def is_start_stored() -> bool:
        with snapshot(service.run_dir / "registry.sqlite") as connection:
            return any(attempt.started for attempt in queries.attempt_records(connection))

    with served(tmp_path, "--nodes", "2", "--on-lost", "fail") as service:
        service.submit(waits("earlier"), {**waits("late"), "hold": True})
        wait_for(lambda: starts(tmp_path, "earlier") and is_start_stored(), what="the first job to start")
        on_disk = {
            path: path.read_bytes()
            for path in service.run_dir.iterdir()
            if path.name.startswith(("registry.sqlite", "agent-local.ledger"))
        }
        service.data("releaseJob", jobNames=["late"])
        wait_for(lambda: starts(tmp_path, "late"), what="the second job to start")
        agent = read_agent_pid(service.run_dir, "local")
        assert agent is not None
        service.kill()
        signal_agent(agent, signal.SIGKILL)
        wait_for(lambda: not is_alive(agent.pid), what="the end of the agent")
        for path, content in on_disk.items():
            path.write_bytes(content)
        (tmp_path / "go").touch()
        service.resume()
        service.data("releaseJob", jobNames=["late"])
        service.wait("late", "SUCCEED")
        service.wait("earlier", "FAILED")
    assert (starts(tmp_path, "earlier"), starts(tmp_path, "late")) == (1, 2)


# -- the program in front ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interrupted", [False, True], ids=["the program ends", "the program is interrupted"])
def test_a_client_program_that_ends_leaves_waiting_jobs_and_the_command_that_continues(
    tmp_path: Path, interrupted: bool
):
    (tmp_path / "program.py").write_text(
        "import time\n"
        "from qcg.pilotjob.api.job import Jobs\n"
        "from qcg.pilotjob.api.manager import Manager\n"
        "manager = Manager()\n"
        f"script = {WAITS!r}\n"
        "manager.submit(Jobs().add(name='a', exec='bash', args=['-c', script, 'a'], numCores=2)"
        ".add(name='b', exec='bash', args=['-c', script, 'b']))\n"
        "while manager.status('a')['jobs']['a']['data']['status'] != 'EXECUTING':\n"
        "    time.sleep(0.02)\n"
        f"time.sleep(1000 if {interrupted} else 0)\n"
    )
    client = start("qcg-pm-client", "--nodes", "2", "program.py", cwd=tmp_path)
    if interrupted:
        wait_for(lambda: starts(tmp_path, "a"), what="the first job to start")
        client.send_signal(signal.SIGTERM)
    _, err = client.communicate(timeout=60)
    assert client.returncode == (128 + signal.SIGTERM if interrupted else 0), err
    (run_dir,) = tmp_path.glob(".qcgpjm-service-*")
    left = "2 jobs are" if interrupted else "1 job is"
    command = f"qcg-pm run --resume {run_dir}"
    assert err.splitlines()[-1] == f"{left} left, because the program has ended. Continue with: {command}"
    assert states(tmp_path) == {"a": "QUEUED" if interrupted else "CANCELED", "b": "QUEUED"}
    (tmp_path / "go").touch()
    assert carry_out(command, tmp_path).returncode == (0 if interrupted else 1)
    assert starts(tmp_path, "b") == 1


# -- request files ----------------------------------------------------------------------------------------------------


def test_a_resumed_service_without_requests_runs_the_jobs_that_are_left(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job(f"j{number}", "sleep", "0.1") for number in range(8)])
    done = run("qcg-pm-service", "--file-path", requests, "--wd", tmp_path, "--nodes", "2")
    assert done.returncode == 4
    (run_dir,) = tmp_path.glob(".qcgpjm-service-*")
    assert "QUEUED" in states(tmp_path).values()
    assert run("qcg-pm-service", "--resume", run_dir).returncode in (0, 1)
    assert set(states(tmp_path).values()) <= {"SUCCEED", "CANCELED"}
    assert "SUCCEED" in states(tmp_path).values()
