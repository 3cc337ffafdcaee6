"""Ctrl-C in a program whose functions run on workers: the calls, the workers, and the program end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.executor_api.errors import ExecutorError
from qcg.pilotjob.executor_api.functions import PilotExecutor
from tests.support.processes import is_alive
from tests.support.waiting import wait_for

PATIENCE = 60.0


@pytest.mark.parametrize("waiting", ["calls[0].result()", "pass", "executor.shutdown()"])
def test_ctrl_c_ends_the_calls_and_the_program(waiting: str, run_dir: Path):
    program = f"""
import os, time
from qcg.pilotjob.executor_api import PilotExecutor

def work():
    print(os.getpid(), file=open("pid.new", "w"))
    os.rename("pid.new", "pid")
    time.sleep(600)

with PilotExecutor(server_args=["--nodes", "1"]) as executor:
    calls = [executor.submit(work) for _ in range(2)]
    {waiting}
"""
    (run_dir / "program.py").write_text(program)
    with subprocess.Popen([sys.executable, "program.py"], stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for((run_dir / "pid").exists, what="the first call")
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
    assert stderr.count("Traceback") == 1
    assert stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert not is_alive(int((run_dir / "pid").read_text()))


def test_an_interrupt_of_the_block_ends_only_the_workers_of_a_shared_manager(run_dir: Path):
    with LocalManager(["--nodes", "1"]) as manager:
        executor = PilotExecutor(manager)
        running, waiting = [executor.submit(time.sleep, 600) for _ in range(2)]
        wait_for(running.running, what="the first call")
        with pytest.raises(KeyboardInterrupt), executor:
            raise KeyboardInterrupt
        assert waiting.cancelled()
        with pytest.raises(ExecutorError, match="left with KeyboardInterrupt"):
            running.result()
        with pytest.raises(RuntimeError, match="shut down"):
            executor.submit(int)
        manager.wait4all(PATIENCE)
        assert {job["status"] for job in manager.list().values()} == {"CANCELED"}


def test_an_error_in_the_block_waits_for_the_calls(run_dir: Path):
    executor = PilotExecutor(server_args=["--nodes", "1"])
    call = executor.submit(pow, 2, 3)
    with pytest.raises(KeyError), executor:
        raise KeyError
    assert call.result() == 8
