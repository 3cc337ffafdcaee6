"""`qcg-pm nodes`: drain nodes of a live run, and use them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.manager_lookup import on_manager
from qcg.pilotjob.common.printable import printable

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager


@click.group("nodes")
def command() -> None:
    """Drain nodes of the live run of this directory, and use them again."""


@command.command("drain")
@click.argument("names", nargs=-1, required=True)
@click.option("--reason", default="", metavar="TEXT", help="The reason, for `qcg-pm status` and the log.")
@on_manager
def drain(manager: Manager, names: tuple[str, ...], reason: str) -> None:
    """Start no more jobs on the nodes or remote hosts NAMES. Jobs that run there continue.

    A manager that resumes the run keeps them drained.
    """
    echo(printable(manager.drain_nodes(names, reason)) or "All of them were already drained.")


@command.command("resume")
@click.argument("names", nargs=-1, required=True)
@on_manager
def resume(manager: Manager, names: tuple[str, ...]) -> None:
    """Start jobs on the drained nodes NAMES again, and forget their failures."""
    echo(printable(manager.resume_nodes(names)) or "None of them was drained.")
