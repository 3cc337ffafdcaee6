"""`qcg-pm resources`: what there is, and what is free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import many, say
from qcg.pilotjob.cli.manager_lookup import on_manager
from qcg.pilotjob.cli.tables import json_option, show_json, show_table

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
        for line in away_lines(have.get("away", {})):
            say(line)


def away_lines(away: dict[str, Any]) -> list[str]:
    """Of nodes that are not there, as the answers have them."""
    return [
        f"{name} is {node['state']} since {node['since'][:19]}, with {many(node['cores'], 'core')}"
        for name, node in away.items()
    ]
