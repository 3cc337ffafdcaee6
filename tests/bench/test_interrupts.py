"""An interrupted benchmark ends soon, without a traceback, and ends all its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import descendants
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]


def start_bench(*arguments: str | Path, python: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start a benchmark as from a terminal: in a process group that gets Ctrl-C."""
    command = [sys.executable, *python, "-m", "bench", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def ctrl_c(pid: int) -> None:
    os.killpg(pid, signal.SIGINT)


def sigterm(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("name", "started"),
    [
        ("manager", "qcg.pilotjob.agent"),
        ("growth", "bench.growth"),
        ("memory", "qcg.pilotjob.agent"),
        ("latency", "qcg.pilotjob.agent"),
        ("utilisation", "qcg.pilotjob.agent"),
        ("idle", "qcg.pilotjob.agent"),
    ],
)
def test_ctrl_c_ends_a_benchmark_and_its_processes(tmp_path: Path, name: str, started: str):
    assert_it_ends_with_all_that_it_has_started(tmp_path, name, started, ctrl_c, 130)


def test_a_sigterm_to_a_benchmark_alone_ends_it_and_its_processes(tmp_path: Path):
    assert_it_ends_with_all_that_it_has_started(tmp_path, "manager", "qcg.pilotjob.agent", sigterm, 143)


def assert_it_ends_with_all_that_it_has_started(
    directory: Path, name: str, started: str, interrupt: Callable[[int], None], code: int
) -> None:
    before = descendants()
    with start_bench(name, "--no-peers", "--directory", directory) as process:
        wait_for(lambda: any(started in str(one) for one in descendants(process.pid)), what=f"a process of {started}")
        interrupt(process.pid)
        _, told = process.communicate()
    assert process.returncode == code, told
    assert "Traceback" not in told
    wait_for(lambda: descendants() <= before, what="the ends of all that it has started")
    assert list(directory.rglob("round-*")) == []


def test_ctrl_c_while_modules_are_loaded_leaves_no_traceback(tmp_path: Path):
    # With this option Python reports each module when it has been loaded: this one is among the first.
    with start_bench("manager", "--directory", tmp_path, python=("-X", "importtime")) as process:
        assert process.stderr is not None
        assert any(line.rstrip().endswith(" argparse") for line in process.stderr)
        ctrl_c(process.pid)
        _, told = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in told
