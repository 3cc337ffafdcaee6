"""Machines without /proc, loopback or enough open files: an error before anything is created, or a normal run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pilot import COMMANDS, Run, job, write_requests

# Sets the host name of a new UTS namespace, and executes the command.
SET_HOST_NAME = """
import ctypes, os, sys
name = b"h\\xffst"
assert ctypes.CDLL(None).sethostname(name, len(name)) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def qcg_pm(*arguments: object) -> list[str]:
    return [sys.executable, *COMMANDS["qcg-pm"], *map(str, arguments)]


def call(line: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=100)
    assert "Traceback" not in done.stderr
    return done


def unshared(option: str) -> list[str]:
    """A command line that runs the following command in a namespace of its own."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", option, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces can be made here")
    return ["unshare", option]


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    return write_requests(tmp_path / "r.json", [job("a", "true"), job("b", script="exit 0", after=["a"])])


def check_refused(done: subprocess.CompletedProcess[str], wd: Path, sentence: str) -> None:
    assert done.returncode == 2, done
    assert sentence in done.stderr
    assert [path.name for path in wd.iterdir()] == ["r.json"], "nothing is made"


@pytest.mark.parametrize("limit", [8, 12, 16, 20, 24, 28, 32])
def test_a_low_limit_of_open_files_is_refused_with_a_message(tmp_path: Path, requests: Path, limit: int):
    line = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *qcg_pm("run", requests, "--nodes", 2)]
    check_refused(call(line, tmp_path), tmp_path, "raise it, for example with `ulimit -n 1024`")


def test_a_low_limit_of_open_files_that_could_be_raised_is_refused_too(tmp_path: Path, requests: Path):
    """Agents and jobs would inherit the limit."""
    line = ["sh", "-c", 'ulimit -S -n 24; exec "$@"', "sh", *qcg_pm("run", requests, "--nodes", 2)]
    check_refused(call(line, tmp_path), tmp_path, "`ulimit -n 1024`")


def test_a_run_works_with_64_open_files(tmp_path: Path, requests: Path):
    line = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *qcg_pm("run", requests, "--nodes", 2)]
    assert call(line, tmp_path).returncode == 0


@pytest.mark.parametrize("limit", [12, 16])
def test_clients_with_few_open_files_get_an_error(tmp_path: Path, limit: int):
    """Otherwise the client would report that the manager does not answer."""
    done = call(
        ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *qcg_pm("status", "-a", "tcp://127.0.0.1:9")], tmp_path
    )
    assert done.returncode == 2
    assert "16 more files cannot be opened" in done.stderr


def test_a_machine_without_proc_is_refused(tmp_path: Path, requests: Path):
    hide = 'mount -t tmpfs none /proc && exec "$@"'
    line = [*unshared("-m"), "sh", "-c", hide, "sh", *qcg_pm("run", requests, "--nodes", 2)]
    check_refused(call(line, tmp_path), tmp_path, "/proc is not mounted")


def test_a_machine_without_loopback_is_refused(tmp_path: Path, requests: Path):
    done = call([*unshared("-n"), *qcg_pm("run", requests, "--nodes", 2)], tmp_path)
    check_refused(done, tmp_path, "this machine cannot connect to its own address 127.0.0.1")


def test_a_host_name_that_is_not_utf_8_is_accepted(tmp_path: Path, requests: Path):
    renamed = [*unshared("-u"), sys.executable, "-c", SET_HOST_NAME, *COMMANDS["qcg-pm"]]
    done = call([*renamed, "run", str(requests), "--report-format", "json"], tmp_path)
    assert done.returncode == 0, done
    assert Run(tmp_path, done).states == {"a": "SUCCEED", "b": "SUCCEED"}
    assert Run(tmp_path, done).report["a"]["runtime"]["allocation"].startswith("h_st[")
    assert os.path.basename(os.path.dirname(os.readlink(tmp_path / "jobs.report"))).startswith(".qcgpjm-service-h_st.")
    assert call([*renamed, "jobs", "--path", str(tmp_path)], tmp_path).returncode == 0
