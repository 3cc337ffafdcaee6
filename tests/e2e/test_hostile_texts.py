"""Names, messages, paths and output of jobs with control characters, in commands and files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import pilot
from tests.support.hostile_texts import HOSTILE, harm_in
from tests.support.pilot import job, run, write_requests

TEXTS = [text for text in HOSTILE.values() if text.encode("utf-8", "replace").decode() == text]
"""JSON has no lone surrogates."""
ALL = "|".join(TEXTS).replace("\0", "")
NAMES = [f"n{text}" for text in TEXTS if not re.search(r"[\s\x00-\x1f\x7f]", text)]
"""Names of jobs may hold these."""
ESCAPE = "\x1b[2J"


def _jobs() -> list[dict[str, object]]:
    say = ["printf", "%s\n", ALL]
    return [
        *(job(name, "true") for name in NAMES),
        job("message", f"./no-such{ALL.replace('/', '')}", "x"),
        job("wd", *say, wd=f"w{ESCAPE}\nforged (SUCCEED)", stdout=f"o{ESCAPE}\u202e.out", stderr=f"e{ESCAPE}.err"),
        job("output", script='printf "%s\\n" "$TEXT" >&2; exit 3', env={"TEXT": ALL}, stderr="output.err"),
        job("waits", "true", after=[NAMES[0], "message"]),
        job("many", "sh", "-c", "exit 1", f"{ESCAPE}\u202e", iteration=2),
    ]


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _run_hostile_jobs(tmp_path_factory.mktemp("hostile"), "text")


def _run_hostile_jobs(wd: Path, report_format: str) -> Path:
    """The working directory of a run with hostile texts: its files and its output."""
    path = write_requests(wd / "r.json", _jobs(), {"request": "cancelJob", "jobNames": [f"x{ESCAPE}\u202e"]})
    done = run("qcg-pm", "run", path, "--wd", wd, "--cores", "2", "--report-format", report_format, "--id", "x")
    assert done.returncode == 1, done.stderr
    (wd / "stdout").write_text(done.stdout)
    (wd / "stderr").write_text(done.stderr)
    return wd


def test_a_json_report_escapes_control_characters_and_keeps_its_meaning(tmp_path: Path):
    report = (_run_hostile_jobs(tmp_path, "json") / "jobs.report").read_bytes().decode()
    assert harm_in(report) == []
    assert set(NAMES) <= {json.loads(line)["name"] for line in report.split("\n") if line}


def test_a_run_prints_and_writes_no_control_characters(hostile_run: Path):
    for name in ("stdout", "stderr", "service.log", "jobs.report", ".qcgpjm-service-x/agent-local.log"):
        with (hostile_run / name).open(encoding="utf-8", newline="") as file:
            assert harm_in(file.read()) == [], name
    report = (hostile_run / "jobs.report").read_text()
    assert "forged (SUCCEED)" not in report.splitlines()
    assert r"na\u202egnp.exe (SUCCEED)" in report.splitlines()
    entry = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL)|    ")
    for line in (hostile_run / "service.log").read_text().splitlines():
        assert entry.match(line), line
        assert not line.startswith("2026-01-01 00:00:00,000"), "forged by the text of a job"


LINES = [
    "report",
    "report --json",
    "jobs",
    "jobs --json",
    "status",
    "runs",
    "info -i *",
    "info --json *",
    "why *",
    "why --json *",
    "logs many:*",
    f"info x{ESCAPE}\u202e",
    f"info x{ESCAPE}*",
    f"jobs na{ESCAPE}",
    f"logs x{ESCAPE}\u202e",
    f"jobs --x{ESCAPE}",
    f"jobs --state {ESCAPE}",
    f"{ESCAPE}command",
    f"run {ESCAPE}\u202e.json",
    f"validate {ESCAPE}\u202e.json",
    f"report {ESCAPE}\u202e",
    f"submit {ESCAPE}\u202e.json",
    f"run --resume {ESCAPE}\u202e",
    "validate r.json",
]


@pytest.mark.parametrize("line", LINES)
def test_no_command_prints_control_characters(hostile_run: Path, line: str):
    done = run("qcg-pm", *line.split(" "), cwd=hostile_run)
    assert done.stdout + done.stderr
    assert harm_in(done.stdout) == []
    assert harm_in(done.stderr) == []


def _on_terminal(wd: Path, *arguments: str) -> bytes:
    """The output of a command on a terminal."""
    ours, its = os.openpty()
    command = [sys.executable, *pilot.COMMANDS["qcg-pm"], *arguments]
    with subprocess.Popen(command, cwd=wd, stdin=its, stdout=its, stderr=subprocess.DEVNULL) as process:
        os.close(its)
        written = b""
        try:
            while part := os.read(ours, 65536):
                written += part
        except OSError:  # the error of a terminal that no process has open any more
            pass
        finally:
            os.close(ours)
        process.wait(60)
    return written.replace(b"\r\n", b"\n")


def test_logs_are_escaped_on_a_terminal_and_exact_elsewhere(hostile_run: Path):
    raw = (hostile_run / "output.err").read_bytes()
    assert ESCAPE.encode() in raw
    shown = _on_terminal(hostile_run, "logs", "--stderr", "output").decode()
    assert r"a\x1b[2Jb" in shown
    assert harm_in(shown) == []
    assert _on_terminal(hostile_run, "logs", "--stderr", "--raw", "output") == raw.replace(b"\r\n", b"\n")
    command = [sys.executable, *pilot.COMMANDS["qcg-pm"], "logs", "--stderr", "output"]
    assert subprocess.run(command, cwd=hostile_run, capture_output=True, check=True).stdout == raw


def test_tables_on_a_terminal_have_no_control_characters_but_colours(hostile_run: Path):
    for command in ("jobs", "report"):
        shown = _on_terminal(hostile_run, command).decode()
        assert harm_in(re.sub(r"\x1b\[[0-9;]*m", "", shown)) == [], command
