"""`progress=True`: a bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager

with LocalManager(["--cores", "2", "--wd", "."], {"log_file": ""}) as manager:
    names = manager.submit(Jobs().add(name="it", exec="sh", args=["-c", "[ ${it} != 2 ]"], iteration=5))
    print(manager.wait4(names, progress=True))
    manager.wait4all(progress=True)
"""
ASYNC_PROGRAM = """
import asyncio
from qcg.pilotjob.api.aio import AsyncManager
from qcg.pilotjob.api.job import Jobs

async def main():
    async with AsyncManager(local=True, server_args=["--cores", "2", "--wd", "."], cfg={"log_file": ""}) as manager:
        jobs = Jobs().add(name="it", exec="sh", args=["-c", "[ ${it} != 2 ]"], iteration=5)
        print(await manager.wait4(await manager.submit(jobs), progress=True))
        await manager.wait4all(progress=True)

asyncio.run(main())
"""


def run(wd: Path, program: str, stderr: int) -> subprocess.Popen[str]:
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=wd, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environ
    )


def read_all(terminal: int) -> str:
    parts = []
    try:
        while part := os.read(terminal, 65536):
            parts.append(part)
    except OSError:  # the other end is closed
        pass
    return b"".join(parts).decode()


@pytest.mark.parametrize("program", [PROGRAM, ASYNC_PROGRAM], ids=["blocking", "asyncio"])
def test_a_terminal_shows_how_many_iterations_are_done(tmp_path: Path, program: str):
    terminal, end = pty.openpty()
    try:
        process = run(tmp_path, program, end)
        os.close(end)
        shown = read_all(terminal)
        out, _ = process.communicate(timeout=60)
    finally:
        os.close(terminal)
    assert process.returncode == 0, shown
    assert out == "{'it': 'FAILED'}\n"
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", shown).replace("\r", "\n").split("\n")]
    assert sum("5 of 5 done, 1 not successful" in line for line in lines) >= 2, shown


@pytest.mark.parametrize("program", [PROGRAM, ASYNC_PROGRAM], ids=["blocking", "asyncio"])
def test_no_progress_bar_is_written_to_a_pipe(tmp_path: Path, program: str):
    process = run(tmp_path, program, subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "{'it': 'FAILED'}\n", "")
