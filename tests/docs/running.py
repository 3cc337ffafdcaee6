"""Executes or validates each example block of a page, depending on its kind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema

from qcg.pilotjob.description.schema import request_file_schema
from tests.docs.output import lines_of, same
from tests.docs.pages import Block, commands_of

TIMEOUT = 120
ON_EIGHT_CORES = "--nodes 4,4"

Shell = Callable[[list[str], Path], "subprocess.CompletedProcess[str]"]
"""Runs a command in a directory, with stderr merged into stdout."""
Write = Callable[[str, str], object]
"""Writes a file of the page: its name, which may begin with `~/`, and its text."""

_validator = jsonschema.Draft202012Validator(request_file_schema())


def run_locally(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


class PageDirectory:
    """The directory in which the examples of one page are executed, in order."""

    def __init__(self, directory: Path, shell: Shell = run_locally, write: Write | None = None) -> None:
        """`write`: writes files as the user of the shell; without it, the user of the tests does."""
        self.directory = directory
        self._shell = shell
        self._write = write or (lambda name, text: (directory / name).write_text(text))
        self.unused: dict[str, Block] = {}
        """Saved files that no command has used yet."""

    def execute(self, block: Block) -> None:
        if block.marker == "not run":
            assert block.value, f"{block.place}: say why it is not run"
        elif block.marker == "file":
            self._save(block)
        elif block.marker == "reply":
            self._compare_reply(block)
        elif block.language == "console":
            self._run(block)
        elif block.language == "json":
            self._check(block)
        else:
            raise AssertionError(f"{block.place}: nothing checks this block; give it a marker")

    def _save(self, block: Block) -> None:
        self._write(block.value, block.text)
        if not block.value.startswith("~/"):  # settings, which no command names
            self.unused[block.value] = block

    def _run(self, block: Block) -> None:
        for command in commands_of(block):
            printed = self._printed(command.line, block.place)
            assert same(command.expected, printed, self.directory), (
                f"{block.place}: {command.line}--- shown\n{_comparable(command.expected, self.directory)}"
                f"\n--- printed\n{_comparable(printed, self.directory)}"
            )
            self.unused = {name: file for name, file in self.unused.items() if name not in command.line}

    def _printed(self, command: str, place: str) -> str:
        try:
            return self._shell(["bash", "-c", command], self.directory).stdout
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{place}: {command}hung; so far it printed {error.stdout!r}") from None

    def _check(self, block: Block) -> None:
        value = json.loads(block.text)
        if block.marker == "part of a job":
            value = {"name": "example", "execution": {"exec": "true"}, **value}
        if isinstance(value, dict):
            requests = [value if "request" in value else {"request": "submit", "jobs": [value]}]
        else:
            requests = value
        problem = jsonschema.exceptions.best_match(_validator.iter_errors(requests))
        assert problem is None, f"{block.place}: the schema refuses it: {problem}"
        path = self.directory / f"line-{block.line}.json"
        path.write_text(json.dumps(_with_missing_jobs(requests)))
        verb = "run" if isinstance(value, list) else "validate"
        printed = self._printed(f"qcg-pm {verb} {path.name} {ON_EIGHT_CORES} || echo refused", block.place)
        assert "refused" not in printed, f"{block.place}: {printed}"

    def _compare_reply(self, block: Block) -> None:
        number, _, file = block.value.partition(", ")
        log = (self.directory / file).read_text()
        replies = re.findall(rf"request {number} answered: (\{{.*\}})$", log, re.MULTILINE)
        assert replies, f"{block.place}: {file} has no whole answer to request {number}"
        shown, given = (json.dumps(json.loads(text), indent=1) for text in (block.text, replies[-1]))
        assert same(shown, given, self.directory), f"{block.place}: the answer is\n{_comparable(given, self.directory)}"


def _with_missing_jobs(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the jobs that an example depends on but does not show, so that it can be validated alone."""
    jobs = [job for request in requests for job in request.get("jobs", [])]
    names = {job["name"] for job in jobs}
    missing: dict[str, dict[str, Any]] = {}
    for job in jobs:
        after = job.get("after") or job.get("dependencies", {}).get("after") or []
        for entry in [after] if isinstance(after, str) else after:
            name, colon, _ = entry.partition(":")
            if name not in names and "$" not in name:
                missing[name] = {"name": name, "exec": "true", **({"iteration": 1000} if colon else {})}
    return [{"request": "submit", "jobs": list(missing.values())}, *requests] if missing else requests


def _comparable(text: str, directory: Path) -> str:
    return "\n".join(lines_of(text, directory))
