"""Commands whose standard output cannot be written do their work and print an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.pilot import COMMANDS, WAIT, environment, job, write_requests

LOST = "Error: standard output cannot be written: No space left on device\n"


def call(wd: Path, command: str, *arguments: str, unbuffered: str = "", **options: Any) -> tuple[int, str]:
    """Run a command whose standard output cannot be written; its exit code and standard error."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, *COMMANDS[command], *arguments],
            **{"stdout": full, "stderr": subprocess.PIPE, **options},
            cwd=wd,
            env=environment(PYTHONUNBUFFERED=unbuffered),
            text=True,
            timeout=60,
            check=False,
        )
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run whose output was lost."""
    wd = tmp_path_factory.mktemp("ran")
    write_requests(wd / "good.json", [job("good", "touch", "made")])
    assert call(wd, "qcg-pm", "run", "good.json", "--nodes", "1") == (5, LOST)
    assert (wd / "made").exists()
    assert "good (SUCCEED)" in (wd / "jobs.report").read_text()
    return wd


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "line", ["report", "schema", "validate good.json", "status", "jobs", "info good", "why good", "--help"]
)
def test_lost_output_is_an_error_message_with_its_own_exit_code(ran: Path, line: str, unbuffered: str):
    code, said = call(ran, "qcg-pm", *line.split(), unbuffered=unbuffered)
    assert code == 5
    assert said.startswith(LOST)
    assert "OSError" not in said


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_run_whose_output_is_lost_runs_its_jobs_and_exits_with_a_failure(tmp_path: Path, unbuffered: str):
    write_requests(tmp_path / "r.json", [job("bad", "false"), job("good", "true")], WAIT)
    lines = {"qcg-pm": ["run", "r.json"], "qcg-pm-service": ["--show-progress", "--file-path", "r.json"]}
    for command, line in lines.items():
        wd = tmp_path / command
        wd.mkdir()
        assert call(tmp_path, command, *line, "--nodes", "1", "--wd", str(wd), unbuffered=unbuffered) == (1, LOST)
        report = (wd / "jobs.report").read_text()
        assert "bad (FAILED)" in report
        assert "good (SUCCEED)" in report


def test_a_refusal_that_cannot_be_printed_still_has_its_exit_code(tmp_path: Path):
    with open("/dev/full", "wb") as full:
        for unbuffered in ("", "1"):
            code, _ = call(tmp_path, "qcg-pm", "run", "missing.json", stderr=full, unbuffered=unbuffered)
            assert code == 2


def test_a_run_whose_stdout_and_stderr_are_full_runs_its_jobs(tmp_path: Path):
    write_requests(tmp_path / "good.json", [job("good", "true")])
    with open("/dev/full", "wb") as full:
        assert call(tmp_path, "qcg-pm", "run", "good.json", "--nodes", "1", stderr=full)[0] == 5
    assert "good (SUCCEED)" in (tmp_path / "jobs.report").read_text()


@pytest.mark.parametrize(("line", "code"), [("schema", 1), ("--help", 1), ("jobs", 0), ("report", 0)])
def test_a_closed_pipe_ends_the_output_without_an_error(ran: Path, line: str, code: int):
    process = subprocess.Popen(
        [sys.executable, *COMMANDS["qcg-pm"], line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ran
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate(timeout=60)
    assert "Error" not in said
    assert process.returncode == code
