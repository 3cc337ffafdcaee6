"""`qcg-pm status`: an overview of a manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.commands.resources import away_lines
from qcg.pilotjob.cli.console import many, say
from qcg.pilotjob.cli.json_records import counts, system_status
from qcg.pilotjob.cli.manager_lookup import on_manager_or_registry
from qcg.pilotjob.cli.tables import json_option, show_json, show_table

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries

COLUMNS = ("total", "waiting", "running", "succeeded", "failed", "cancelled", "omitted")


@click.command("status")
@json_option
@on_manager_or_registry
def command(manager: Queries, as_json: bool) -> None:
    """Show how a manager is: since when, where, how many cores are in use, how many jobs are in which state.

    When it has ended: how many jobs are in which state, from its registry.
    """
    status = manager.system_status()
    if as_json:
        show_json(system_status(status))
        return
    if "System" in status:
        _show_manager(status["System"], status["Resources"])
    rows = [["jobs", *_counts(status["JobStats"], "Jobs")]]
    if status["IterationStats"]["TotalIterations"]:
        rows.append(["iterations", *_counts(status["IterationStats"], "Iterations")])
    show_table(["", *COLUMNS], rows, right=COLUMNS)


def _show_manager(system: dict[str, Any], have: dict[str, Any]) -> None:
    away = have.get("Away", {})
    nodes = many(have["TotalNodes"] - len(away), "node")
    cores = have["TotalCores"] - sum(node["cores"] for node in away.values())
    say(f"Manager {system['InstanceId']} on {system['Host']}, since {system['Started'][:19]}, in {system['Wd']}")
    # Jobs on nodes that are away hold their cores until it is known what became of them.
    used = cores - have["FreeCores"]
    say(f"{used} of {many(cores, 'core')} on {nodes} in use")
    for line in away_lines(away):
        say(line)
    say("")


def _counts(stats: dict[str, int], what: str) -> list[str]:
    """In the order of the columns."""
    return [str(count) for count in counts(stats, what).values()]
