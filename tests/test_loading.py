"""What a process loads before it does anything: a run waits for it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("qcg.pilotjob.agent.__main__", {"asyncio", "sqlite3", "qcg.pilotjob.cluster.base"}),
        # Before Ctrl-C is taken care of.
        ("qcg.pilotjob.cli.entrypoints", {"click", "msgspec", "typing", "contextlib", "qcg.pilotjob.cli.stdout"}),
        # Before the process of the agent is started.
        (
            "qcg.pilotjob.cli.main, qcg.pilotjob.cli.commands.run",
            {"asyncio", "zmq", "sqlite3", "rich", "qcg.pilotjob.manager.engine"},
        ),
        ("qcg.pilotjob.cli.commands.service", {"asyncio", "zmq", "sqlite3", "rich", "qcg.pilotjob.manager.engine"}),
    ],
)
def test_what_is_not_needed_at_once_is_not_loaded_first(module: str, spared: set[str]) -> None:
    code = f"import {module}, sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "qcg.pilotjob" in loaded
    assert not loaded & spared
