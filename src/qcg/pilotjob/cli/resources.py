"""`qcg-pm resources`: what there is, and what is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.finding import json_option, on_manager
from qcg.pilotjob.cli.showing import show_json, show_table

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager


@click.command("resources")
@json_option
@on_manager
def command(manager: Manager, as_json: bool) -> None:
    """Show how many nodes and cores there are, and how many cores are in use."""
    have = manager.resources()
    if as_json:
        show_json(have)
    else:
        columns = {"nodes": "total_nodes", "cores": "total_cores", "used": "used_cores", "free": "free_cores"}
        show_table(list(columns), [[have[key] for key in columns.values()]], right=list(columns))
