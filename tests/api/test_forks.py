"""Programs that fork while they use a manager: both processes continue, and the manager ends with its owner."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from tests.support.processes import is_alive
from tests.support.waiting import wait_for

PATIENCE = 60

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def in_child(call: Callable[[], object]) -> int:
    """The exit code of a forked process that makes a call: 0 when it returned."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            call()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_client_works_in_a_forked_process_and_in_its_parent(tmp_path: Path):
    with LocalManager(["--nodes", "2", "--wd", tmp_path], {"request_timeout": PATIENCE}) as manager:
        manager.resources()

        def child() -> None:
            assert manager.submit(Jobs().add(name="of-child", exec="true")) == ["of-child"]
            assert manager.wait4("of-child", PATIENCE) == {"of-child": "SUCCEED"}
            manager.cleanup()  # uses its own connections; the service belongs to the parent

        assert in_child(child) == 0
        assert manager.wait4("of-child", PATIENCE) == {"of-child": "SUCCEED"}


def test_a_forked_process_does_not_keep_the_manager_alive(tmp_path: Path):
    program = """
        import os, signal, time
        from qcg.pilotjob.api.manager import LocalManager
        manager = LocalManager(["--nodes", "1", "--wd", "."])
        child = os.fork()
        if child == 0:
            time.sleep(600)
        print(manager.qcgpm_process.pid, child, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    line = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        service, child = map(int, process.stdout.readline().split())
        try:
            wait_for(lambda: not is_alive(service), PATIENCE, what="the end of the service")
        finally:
            os.kill(child, 9)
