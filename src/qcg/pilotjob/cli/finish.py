"""`qcg-pm finish`: end a running manager."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.finding import current_run_dir, on_manager
from qcg.pilotjob.cli.refusing import Denial
from qcg.pilotjob.cli.saying import say
from qcg.pilotjob.guard import is_alive
from qcg.pilotjob.wire import contact

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager

PAUSE = 0.02
PATIENCE = 60.0
"""Seconds that a manager may take to end its jobs and itself."""


@click.command("finish")
@click.option("--when-done", is_flag=True, help="Not now, but as soon as every job has ended; returns at once.")
@on_manager
def command(manager: Manager, when_done: bool) -> None:
    """End a manager, and with it all its jobs. Returns when it is gone."""
    if when_done:
        manager.send_request({"request": "control", "command": "finishAfterAllTasksDone"})
        say("the manager ends as soon as every job has ended")
        return
    manager.finish()
    run_dir = current_run_dir()
    if run_dir is not None:
        _wait_until_gone(run_dir)
    say("the manager has ended" if run_dir else "the manager ends now")


def _wait_until_gone(run_dir: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while (found := contact.read(run_dir)) is not None and is_alive(run_dir, found):
        if time.monotonic() > deadline:
            raise Denial(f"the manager (pid {found.pid}) was told to end, and is still there after {PATIENCE:g} s")
        time.sleep(PAUSE)
