"""`qcg-pm finish`: end a running manager."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.errors import Denial
from qcg.pilotjob.cli.manager_lookup import current_run_dir, on_manager_or
from qcg.pilotjob.runs.manager_process import is_alive
from qcg.pilotjob.runs.resume_hint import jobs_left_text
from qcg.pilotjob.runs.unfinished import read_unfinished
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import Contact, ContactError

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager

PAUSE = 0.02
EXIT_TIMEOUT = 60.0
"""Seconds for a manager to end its jobs and itself."""


@click.command("finish")
@click.option("--when-done", is_flag=True, help="End as soon as every job has ended; the command returns at once.")
@click.option("--cancel", is_flag=True, help="Cancel waiting jobs, too: no job is left for --resume.")
@on_manager_or("There is no manager to end.")
def command(manager: Manager, when_done: bool, cancel: bool) -> None:
    """End a manager, and return when it has ended.

    Running jobs are killed and CANCELED. Waiting jobs stay QUEUED, and --resume continues with them.
    """
    if when_done and cancel:
        raise click.UsageError("--when-done waits for all jobs, and --cancel for none: give one of them")
    if when_done:
        manager.send_request({"request": "control", "command": "finishAfterAllTasksDone"})
        echo("the manager ends as soon as every job has ended")
        return
    manager.finish(cancel)
    run_dir = current_run_dir()
    if run_dir is None:
        echo("the manager ends now")
        return
    _wait_until_ended(run_dir)
    echo("the manager has ended")
    left = read_unfinished(run_dir)
    if left.unfinished:
        go_on = left.resume_command().replace("`", "")
        echo_err(f"{jobs_left_text(left.unfinished)}. Continue with: {go_on}")


def _contact_of(run_dir: Path) -> Contact | None:
    try:
        return contact.read(run_dir)
    except ContactError as error:
        raise Denial(f"the request to end was sent, but the state of the manager cannot be read: {error}") from None


def _wait_until_ended(run_dir: Path) -> None:
    deadline = time.monotonic() + EXIT_TIMEOUT
    while (found := _contact_of(run_dir)) is not None and is_alive(run_dir, found):
        if time.monotonic() > deadline:
            raise Denial(f"the manager (pid {found.pid}) got the request to end, and runs after {EXIT_TIMEOUT:g} s")
        time.sleep(PAUSE)
