"""The modules that a process loads at its start, for which a run waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pilot import COMMANDS
from tests.support.serving import served


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("qcg.pilotjob.agent.__main__", {"asyncio", "sqlite3", "qcg.pilotjob.cluster.base"}),
        # Before Ctrl-C is handled.
        ("qcg.pilotjob.cli.entrypoints", {"click", "msgspec", "typing", "contextlib", "qcg.pilotjob.cli.stdout"}),
        # Before the process of the agent is started.
        (
            "qcg.pilotjob.cli.main, qcg.pilotjob.cli.commands.run",
            {"asyncio", "zmq", "sqlite3", "rich", "qcg.pilotjob.manager.engine"},
        ),
        ("qcg.pilotjob.cli.commands.service", {"asyncio", "zmq", "sqlite3", "rich", "qcg.pilotjob.manager.engine"}),
    ],
)
def test_modules_that_are_not_needed_at_once_are_not_loaded_first(module: str, spared: set[str]) -> None:
    code = f"import {module}, sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "qcg.pilotjob" in loaded
    assert not loaded & spared


NOT_NEEDED = {
    *("asyncio", "ssl", "sqlite3", "rich", "importlib.metadata", "email", "html", "ctypes"),
    *("qcg.pilotjob.cli.options", "qcg.pilotjob.description.model", "qcg.pilotjob.cluster.base"),
    *("qcg.pilotjob.agent.pidfile", "qcg.pilotjob.journal.queries", "qcg.pilotjob.report.summary_html"),
    *("qcg.pilotjob.runs.guard", "qcg.pilotjob.cli.offline_client"),
}
"""Modules that a question to a live manager has no use for."""
MOST_MODULES = 80
"""Modules of this package; the number of others depends on the version of Python."""


@pytest.mark.parametrize("command", ["status", "jobs"])
def test_questions_to_a_live_manager_load_little(tmp_path: Path, command: str) -> None:
    """A manager that starts jobs leaves little of the cores for the start of a command."""
    with served(tmp_path, "--nodes", "1"):
        line = [sys.executable, "-X", "importtime", *COMMANDS["qcg-pm"], command, "--path", str(tmp_path)]
        done = subprocess.run(line, stderr=subprocess.PIPE, text=True, check=True)
    loaded = {entry.rpartition("|")[2].strip() for entry in done.stderr.splitlines() if entry.startswith("import time")}
    assert "zmq" in loaded
    assert not loaded & NOT_NEEDED
    assert len([name for name in loaded if name.startswith("qcg.")]) <= MOST_MODULES
