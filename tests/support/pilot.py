"""Runs the commands as a user does: real processes, real files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import warm_start

SUBMIT = "submit"
WAIT = {"request": "control", "command": "finishAfterAllTasksDone"}

COMMANDS = {
    "qcg-pm": ["-c", "from qcg.pilotjob.cli.entrypoints import qcg_pm; qcg_pm()"],
    "qcg-pm-client": ["-c", "from qcg.pilotjob.cli.entrypoints import qcg_pm_client; qcg_pm_client()"],
    "qcg-pm-service": ["-m", "qcg.pilotjob.service"],
}


def job(name: str, *argv: str, **more: Any) -> dict[str, Any]:
    """A job in the standard form; keys of its execution or resources are put into these objects."""
    execution = {"exec": argv[0], "args": list(argv[1:])} if argv else {}
    description: dict[str, Any] = {"name": name, "execution": execution}
    for key, value in more.items():
        if key in ("iteration", "iterate", "resources", "dependencies", "attributes", "remote", "retry"):
            description[key] = value
        elif key == "after":
            description["dependencies"] = {"after": value}
        elif key in ("numCores", "numNodes", "wt", "nodeCrs", "named"):
            description.setdefault("resources", {})[key] = value
        else:
            execution[key] = value
    return description


def write_requests(path: Path, *requests: dict[str, Any] | list[dict[str, Any]]) -> Path:
    """Write a request file; a list among the requests is a submission of these jobs."""
    content = [{"request": SUBMIT, "jobs": one} if isinstance(one, list) else one for one in requests]
    path.write_text(json.dumps(content))
    return path


def start(command: str, *arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    # With this option the command prints its stack at SIGABRT.
    line = [sys.executable, "-X", "faulthandler", *COMMANDS[command], *map(str, arguments)]
    return warm_start.start(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def run(command: str, *arguments: str | Path, timeout: float = 60, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. A command that hangs gets SIGABRT, so that the failure shows its stack."""
    process = start(command, *arguments, **options)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        out, err = process.communicate()
        raise AssertionError(f"{command} {arguments} hung\n--- stdout\n{out}\n--- stderr\n{err}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run_requests(directory: Path, *requests: Any, options: tuple[str, ...] = ("--nodes", "4")) -> Run:
    """Write a request file, run it with `qcg-pm run`, and return its results."""
    path = write_requests(directory / "requests.json", *requests)
    done = run("qcg-pm", "run", path, "--wd", directory, "--report-format", "json", *options)
    return Run(directory, done)


class Run:
    """Files and exit code of a finished run."""

    def __init__(self, wd: Path, done: subprocess.CompletedProcess[str]) -> None:
        self.wd = wd
        self.done = done

    @property
    def report(self) -> dict[str, dict[str, Any]]:
        """The entries of the report by name; each name must occur once."""
        entries = [json.loads(line) for line in (self.wd / "jobs.report").read_text().splitlines()]
        names = [entry["name"] for entry in entries]
        assert len(names) == len(set(names)), f"reported twice: {[name for name in names if names.count(name) > 1]}"
        return dict(zip(names, entries, strict=True))

    @property
    def states(self) -> dict[str, str]:
        return {name: entry["state"] for name, entry in self.report.items()}

    @property
    def replies(self) -> list[dict[str, Any]]:
        log = (self.wd / "service.log").read_text()
        return [json.loads(match) for match in re.findall(r"request \d+ answered: (\{.*\})", log)]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, **changes}
