"""`qcg-pm resources`: show all nodes and cores, and the free ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.manager_lookup import on_manager
from qcg.pilotjob.cli.tables import json_option, show_json, show_table
from qcg.pilotjob.common.wording import pluralize

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
            echo(line)


def away_lines(away: dict[str, Any]) -> list[str]:
    """Lines about nodes that are not available, from the `away` of a reply."""
    return [
        f"{name} is {node['state']} since {node['since'][:19]}, with {pluralize(node['cores'], 'core')}"
        for name, node in away.items()
    ]
