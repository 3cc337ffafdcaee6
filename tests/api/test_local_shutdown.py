"""The end of a LocalManager in every way, and the manager that resumes its run."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qcg.pilotjob.api.aio import AsyncManager
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.runs.manager_process import has_manager
from qcg.pilotjob.runs.unfinished import count_unfinished
from tests.support.pilot import run
from tests.support.project import ROOT
from tests.support.waiting import wait_for

WAITS = "echo x >> $0.starts; until [ -e go ]; do sleep 0.05; done"


def local(wd: Path, *options: str) -> LocalManager:
    return LocalManager(["--wd", wd, "--nodes", 2, "--id", "x", *options])


def busy(wd: Path) -> LocalManager:
    """`a` runs on both cores, `b` waits for them, `c` waits for `b`."""
    manager = local(wd)
    jobs = Jobs().add(name="a", exec="bash", args=["-c", WAITS, "a"], numCores=2)
    manager.submit(jobs.add(name="b", exec="bash", args=["-c", WAITS, "b"]).add(name="c", exec="true", after="b"))
    wait_for(lambda: manager.list()["a"]["status"] == "EXECUTING", what="the first job to start")
    wait_for(lambda: (wd / "a.starts").exists(), what="its first line")
    return manager


def states(wd: Path) -> dict[str, str]:
    lines = run("qcg-pm", "jobs", "--path", wd).stdout.splitlines()[1:]
    return {line.split()[0]: line.split()[1] for line in lines}


def finish(manager: LocalManager) -> None:
    manager.finish()


def leave_block(manager: LocalManager) -> None:
    with manager:
        pass


def kill_manager_process(manager: LocalManager) -> None:
    manager.kill_manager_process()
    manager.cleanup()


@pytest.mark.parametrize("end", [finish, leave_block, kill_manager_process])
def test_running_jobs_are_cancelled_and_the_others_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, end: Callable[[LocalManager], None]
):
    manager = busy(tmp_path)
    with caplog.at_level(logging.WARNING, "qcg.pilotjob.api"):
        end(manager)
    assert manager.qcgpm_process.returncode == 4
    records = [record for record in caplog.records if record.name == "qcg.pilotjob.api"]
    (line,) = [record.getMessage() for record in records if record.levelno == logging.WARNING]
    run_dir = tmp_path / ".qcgpjm-service-x"
    assert line == (
        f"2 jobs are left; continue with LocalManager(['--resume', '{run_dir}']) or `qcg-pm run --resume {run_dir}`"
    )
    assert states(tmp_path) == {"a": "CANCELED", "b": "QUEUED", "c": "QUEUED"}
    (tmp_path / "go").touch()
    with LocalManager(["--resume", run_dir]) as resumed:
        assert resumed.wait4(["a", "b", "c"], 60) == {"a": "CANCELED", "b": "SUCCEED", "c": "SUCCEED"}


def test_a_garbage_collected_object_ends_its_manager_as_finish_does(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    manager = busy(tmp_path)
    with caplog.at_level(logging.WARNING, "qcg.pilotjob.api"):
        del manager
        gc.collect()
        wait_for(lambda: "2 jobs are left" in caplog.text, what="the log line")
    assert states(tmp_path) == {"a": "CANCELED", "b": "QUEUED", "c": "QUEUED"}


def test_finish_with_cancel_leaves_no_job(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    manager = busy(tmp_path)
    manager.finish(cancel=True)
    assert manager.qcgpm_process.returncode == 1
    assert "left" not in caplog.text
    assert set(states(tmp_path).values()) == {"CANCELED"}


@pytest.mark.parametrize("cancel", [False, True])
def test_an_own_asyncio_manager_ends_in_the_same_way(tmp_path: Path, cancel: bool):
    async def scenario() -> None:
        async with AsyncManager(local=True, server_args=["--wd", tmp_path, "--nodes", 1]) as manager:
            await manager.submit(Jobs().add(name="a", exec="sleep", args=["1000"]).add(name="b", exec="true"))
            for _ in range(3000):
                if (await manager.list())["a"]["status"] == "EXECUTING":
                    break
                await asyncio.sleep(0.02)
            if cancel:
                await manager.finish(cancel=True)

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert states(tmp_path) == {"a": "CANCELED", "b": "CANCELED" if cancel else "QUEUED"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, NameError])
def test_an_exception_that_leaves_the_block_cancels_no_job(tmp_path: Path, error: type[BaseException]):
    manager = busy(tmp_path)
    with pytest.raises(error), manager:
        raise error
    assert manager.qcgpm_process.returncode == 4
    assert states(tmp_path) == {"a": "QUEUED", "b": "QUEUED", "c": "QUEUED"}


def test_an_exception_that_leaves_an_asyncio_block_cancels_no_job(tmp_path: Path):
    async def scenario() -> None:
        async with AsyncManager(local=True, server_args=["--wd", tmp_path, "--nodes", 1]) as manager:
            await manager.submit(Jobs().add(name="a", exec="sleep", args=["1000"]))
            raise NameError

    with pytest.raises(NameError):
        asyncio.run(asyncio.wait_for(scenario(), 60))
    assert states(tmp_path) == {"a": "QUEUED"}


def test_jobs_of_a_program_that_was_killed_are_queued_again(tmp_path: Path):
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.api.test_local_shutdown import busy\n"
        f"manager = busy(Path({str(tmp_path)!r}))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    wait_for(lambda: not has_manager(tmp_path / ".qcgpjm-service-x"), what="the end of the manager")
    assert states(tmp_path) == {"a": "QUEUED", "b": "QUEUED", "c": "QUEUED"}
    (tmp_path / "go").touch()
    assert run("qcg-pm", "run", "--resume", tmp_path).returncode == 0
    assert (tmp_path / "a.starts").read_text().split() == ["x", "x"]


def test_workers_of_a_killed_program_are_not_resumed(tmp_path: Path):
    program = (
        "import os, signal\n"
        "from qcg.pilotjob.executor_api import PilotExecutor\n"
        f"executor = PilotExecutor(wd={str(tmp_path)!r}, server_args=['--nodes', '1', '--id', 'x'])\n"
        "executor.submit(abs, -1).result(60)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    run_dir = tmp_path / ".qcgpjm-service-x"
    wait_for(lambda: not has_manager(run_dir), what="the end of the manager")
    assert count_unfinished(run_dir) == 0


# -- a program of the old system ---------------------------------------------------------------------------------------

CAMPAIGN = '''
"""Submits pairs of tasks one by one, as EasyVVUQ-QCGPJ does, and continues where an earlier call was stopped."""
import os, sys, time
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager

directory, stop = sys.argv[1], sys.argv[2] == "stop"
resume = os.path.exists(os.path.join(directory, "submitted"))
arguments = ["--log", "debug", "--wd", directory, "--nodes", "2", "--system-core"]
if resume:
    arguments += ["--resume", directory]
manager = LocalManager(arguments, {"log_file": directory + "/api.log", "log_level": "debug"})
print(manager.resources()["total_cores"])
if resume:
    manager.wait4all()
else:
    for number in range(6):
        first = {
            "name": f"encode_Run_{number}",
            "execution": {"exec": "bash", "args": ["-c", f"echo {number} >> encoded"], "wd": directory},
            "resources": {"numCores": {"exact": 1}},
        }
        second = {
            "name": f"execute_Run_{number}",
            "execution": {
                "exec": "bash",
                "args": ["-c", f"echo {number} >> executed; [ {number} = 0 ] || until [ -e go ]; do sleep 0.05; done"],
                "wd": directory,
            },
            "resources": {"numCores": {"exact": 1}},
            "dependencies": {"after": (first["name"],)},
        }
        manager.submit(Jobs().add_std(first))
        manager.submit(Jobs().add_std(second))
    open(os.path.join(directory, "submitted"), "w").close()
    if stop:
        manager.wait4("execute_Run_0")
        def is_running(name):
            return name.startswith("execute") and manager.list()[name]["status"] == "EXECUTING"
        while not any(map(is_running, manager.list())):
            time.sleep(0.02)
    else:
        manager.wait4all()
manager.finish()
manager.kill_manager_process()
manager.cleanup()
'''


def test_a_program_like_eqi_is_stopped_and_resumed(tmp_path: Path):
    (tmp_path / "campaign.py").write_text(CAMPAIGN)
    wd = tmp_path / "eqi"
    wd.mkdir()
    line = [sys.executable, str(tmp_path / "campaign.py"), str(wd)]
    stopped = subprocess.run([*line, "stop"], capture_output=True, text=True, timeout=60, check=False)
    assert stopped.returncode == 0, stopped.stderr
    before = states(wd)
    assert before["execute_Run_0"] == "SUCCEED"
    assert "jobs are left" in (wd / "api.log").read_text()
    (wd / "go").touch()
    resumed = subprocess.run([*line, "go on"], capture_output=True, text=True, timeout=60, check=False)
    assert resumed.returncode == 0, resumed.stderr
    after = states(wd)
    # One job ran when the program stopped and is CANCELED. Each other job ran once.
    cancelled = {name for name, state in before.items() if state == "CANCELED"}
    assert len(cancelled) == 1
    assert {name for name, state in after.items() if state != "SUCCEED"} == cancelled
    assert sorted((wd / "encoded").read_text().split()) == list("012345")
    assert sorted((wd / "executed").read_text().split()) == list("012345")
