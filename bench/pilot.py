"""Runs and times the commands of this project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import processes
from bench.finding import BenchError

QCG_PM = [sys.executable, "-c", "from qcg.pilotjob.cli.main import main; main(prog_name='qcg-pm')"]

SOURCE = Path(__file__).parents[1] / "src"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")])),
    "PYTHONPYCACHEPREFIX": str(SOURCE.parent / "build" / "bytecode"),
}
# Modules are compiled once, as after an installation, whatever the environment says.
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)


def job(name: str, *argv: str, **more: Any) -> dict[str, Any]:
    """A job in the simple form."""
    return {"name": name, "exec": argv[0], "args": list(argv[1:]), **more}


def separate(count: int, *argv: str, **more: Any) -> list[dict[str, Any]]:
    return [job(f"job{number}", *argv, stdout=f"out/{number}", **more) for number in range(count)]


def iterated(count: int, *argv: str, **more: Any) -> list[dict[str, Any]]:
    return [job("job", *argv, stdout="out/${it}", iteration=count, **more)]


def write_requests(path: Path, jobs: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps([{"request": "submit", "jobs": jobs}]))
    return path


def run(directory: Path, requests: Path, *options: str) -> float:
    """Seconds of a successful `qcg-pm run`, from the start of the command to its end."""
    began = time.monotonic()
    done = processes.run(
        [*QCG_PM, "run", str(requests), "--wd", str(directory), *options],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        raise BenchError(f"qcg-pm run {requests} failed:\n{done.stdout}")
    return seconds


def nodes(count: int, cores: int) -> list[str]:
    return ["--nodes", ",".join([str(cores)] * count)]


def report(directory: Path) -> list[dict[str, Any]]:
    """The entries of a JSON report."""
    return [json.loads(line) for line in (directory / "jobs.report").read_text().splitlines()]


def logged_seconds(directory: Path) -> float:
    """Seconds between the first and the last line of a run's log, which include the start of the agent."""
    lines = (directory / "service.log").read_text().splitlines()
    first, last = (datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f") for line in (lines[0], lines[-1]))
    return (last - first).total_seconds()


def python(*arguments: str) -> Sequence[str]:
    return [sys.executable, *arguments]
