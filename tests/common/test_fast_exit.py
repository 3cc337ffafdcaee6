"""The end of a command without the teardown of the interpreter: real processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, threading, time
from qcg.pilotjob.common.fast_exit import FastExit

class Noted:
    def __del__(self):
        print("torn down")

process = FastExit()
kept = Noted()
atexit.register(lambda: print("handler"))
threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
sys.stdout.write("written ")
"""


def ended(end: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", PROGRAM + end], capture_output=True, text=True, timeout=60, check=False
    )


def test_threads_and_exit_handlers_end_as_usual_and_output_is_complete():
    result = ended("process.exit(3)")
    assert (result.returncode, result.stdout, result.stderr) == (3, "written thread\nhandler\n", "")


@pytest.mark.parametrize(("given", "code", "stderr"), [("None", 0, ""), ("'refused'", 1, "refused\n"), ("0", 0, "")])
def test_the_exit_code_is_that_of_sys_exit(given: str, code: int, stderr: str):
    result = ended(f"process.exit({given})")
    assert (result.returncode, result.stderr) == (code, stderr)


def test_an_exception_ends_the_process_as_usual():
    result = ended("raise SystemExit(5)")
    assert (result.returncode, result.stdout) == (5, "written thread\nhandler\ntorn down\n")


def test_output_that_cannot_be_written_is_reported_by_the_interpreter():
    program = "from qcg.pilotjob.common.fast_exit import FastExit; process = FastExit(); print(1); process.exit(0)"
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
    assert result.returncode == 120
    assert "No space left on device" in result.stderr


def test_the_development_mode_of_python_has_the_teardown():
    assert ended("process.exit(0)", "-X", "dev").stdout.endswith("torn down\n")
