"""Any call that touches files fails with EIO, ENOSPC or EROFS: a sentence, no hang, and what follows is right.

Each tier tries a seeded sample.
QCG_PM_ALL_FAULTS=1 tries every call with every error.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fault_injection import Faults
from tests.support.pilot import Run, job, run, write_requests
from tests.support.tiers import per_tier

EVERYTHING = os.environ.get("QCG_PM_ALL_FAULTS") == "1"
SEED = 20261117
ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS)
JOBS = [
    job("a", "/bin/sh", "-c", "echo a >> marks"),
    job("b", "/bin/sh", "-c", "echo b >> marks; exit 1", after=["a"]),
    job("c", "/bin/sh", "-c", "echo c${it} >> marks", iteration=3),
]
MARKS = ["a", "b", "c0", "c1", "c2"]
STATES = {"a": "SUCCEED", "b": "FAILED", "c": "SUCCEED", "c:0": "SUCCEED", "c:1": "SUCCEED", "c:2": "SUCCEED"}
OPTIONS = ("--nodes", "2", "--report-format", "json")
NEVER_BEGUN = ("died before it had begun; start anew", "There is no registry at ")
"""What `--resume` says of a run directory in which nothing was stored, and which could not be removed either."""

pytestmark = [pytest.mark.sampled, pytest.mark.timeout(14400 if EVERYTHING else per_tier(300, 3600))]


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Faults:
    return Faults(tmp_path_factory.mktemp("library"))


def tries(calls: int, wanted: int) -> Iterator[tuple[int, int, int]]:
    """Which call fails, with which error, and how many after it."""
    everything = [(call, error, more) for call in range(1, calls + 1) for error in ERRORS for more in (0, 4)]
    yield from everything if EVERYTHING else random.Random(SEED).sample(everything, min(wanted, len(everything)))


def begin(wd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return run("qcg-pm", "run", wd / "r.json", "--wd", wd, *OPTIONS, cwd=wd, timeout=100, **options)


def new_directory(tmp_path: Path) -> Path:
    wd = tmp_path / "faulty"
    shutil.rmtree(wd, ignore_errors=True)
    wd.mkdir()
    write_requests(wd / "r.json", JOBS)
    return wd


def check_sentence(done: subprocess.CompletedProcess[str]) -> None:
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode in (0, 1, 2, 3, 4, 5), done
    assert done.returncode in (0, 1) or done.stderr.strip()


def bring_to_an_end(wd: Path, done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """As a user would, now that the disk works again."""
    run_dirs = list(wd.glob(".qcgpjm-service-*"))
    if run_dirs:
        again = run("qcg-pm", "run", "--resume", wd, cwd=wd, timeout=100)
        if not any(sentence in again.stderr for sentence in NEVER_BEGUN):
            return again
        shutil.rmtree(run_dirs[0])
    assert done.returncode == 2, "it has not begun, and says so"
    assert not (wd / "marks").exists()
    return begin(wd)


def check_outcome(wd: Path, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1, done
    assert sorted((wd / "marks").read_text().split()) == MARKS, "each job ran once"
    assert Run(wd, done).states == STATES


def test_a_run_survives_any_call_of_its_manager_that_fails(tmp_path: Path, faults: Faults):
    wd = new_directory(tmp_path)
    assert begin(wd, env=faults.environment(wd.name)).returncode == 1
    calls = faults.calls()
    assert calls > 50
    for call, error, more in tries(calls, per_tier(3, 40)):
        wd = new_directory(tmp_path)
        done = begin(wd, env=faults.environment(wd.name, call, error, more=more))
        try:
            check_sentence(done)
            check_outcome(wd, bring_to_an_end(wd, done))
        except (AssertionError, OSError) as failure:
            what = f"call {call} ({faults.failed_call()}), {errno.errorcode[error]}, {more} more"
            raise AssertionError(f"{what}\n{done.stderr}") from failure


def test_a_run_survives_any_call_of_its_agent_that_fails(tmp_path: Path, faults: Faults):
    wd = new_directory(tmp_path)
    assert begin(wd, env=faults.environment(wd.name, process="qcg.pilotjob.agent")).returncode == 1
    for call, error, _ in tries(min(faults.calls(), 40), per_tier(2, 20)):
        wd = new_directory(tmp_path)
        done = begin(wd, env=faults.environment(wd.name, call, error, process="qcg.pilotjob.agent"))
        try:
            check_sentence(done)
            check_outcome(wd, bring_to_an_end(wd, done))
        except (AssertionError, OSError) as failure:
            what = f"call {call} ({faults.failed_call()}), {errno.errorcode[error]}"
            raise AssertionError(f"{what}\n{done.stderr}") from failure


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    wd = new_directory(tmp_path)
    assert begin(wd).returncode == 1
    return wd


COMMANDS = (
    ["report", "{wd}"],
    ["jobs", "--path", "{wd}"],
    ["info", "c", "--path", "{wd}"],
    ["validate", "{wd}/r.json"],
    ["run", "--resume", "{wd}"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(command[:2]) for command in COMMANDS])
def test_commands_survive_any_call_that_fails(ended: Path, faults: Faults, command: list[str]):
    line = [word.format(wd=ended) for word in command]
    run("qcg-pm", *line, env=faults.environment(ended.name))
    calls = faults.calls()
    assert calls
    for call, error, more in tries(calls, per_tier(2, 20)):
        done = run("qcg-pm", *line, env=faults.environment(ended.name, call, error, more=more))
        try:
            check_sentence(done)
        except AssertionError as failure:
            what = f"call {call} ({faults.failed_call()}), {errno.errorcode[error]}, {more} more"
            raise AssertionError(f"{what}\n{done.stderr}") from failure
    again = run("qcg-pm", "run", "--resume", ended)
    assert again.returncode == 1
    entries = [json.loads(text)["name"] for text in (ended / "jobs.report").read_text().splitlines()]
    assert sorted(entries) == sorted(STATES)
    assert sorted((ended / "marks").read_text().split()) == MARKS
