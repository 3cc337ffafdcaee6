"""`qcg-pm status`: show the state of a manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.commands.resources import away_lines, drained_lines, host_lines, named_lines
from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.json_records import counts, system_status
from qcg.pilotjob.cli.manager_lookup import on_manager_or_registry
from qcg.pilotjob.cli.tables import json_option, show_json, show_table
from qcg.pilotjob.common.wording import pluralize

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries

COLUMNS = ("total", "waiting", "running", "succeeded", "failed", "cancelled", "omitted")


@click.command("status")
@json_option
@on_manager_or_registry
def command(manager: Queries, as_json: bool) -> None:
    """Show the state of a manager: its host, start time, cores in use, and the number of jobs by state.

    When the manager has ended: the number of jobs by state, from its registry.
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
    away, drained = have.get("Away", {}), have.get("Drained", {})
    nodes = pluralize(have["TotalNodes"] - len(away), "node")
    cores = have["TotalCores"] - sum(node["cores"] for node in away.values())
    idle = sum(node["cores"] - node["used"] for name, node in drained.items() if name not in have.get("Hosts", {}))
    echo(f"Manager {system['InstanceId']} on {system['Host']}, since {system['Started'][:19]}, in {system['Wd']}")
    # Jobs on nodes that are away keep their cores until their result is known.
    used = cores - have["FreeCores"] - idle
    echo(f"{used} of {pluralize(cores, 'core')} on {nodes} in use")
    named = named_lines(have.get("Named", {}), have.get("Gpus"))
    for line in (*named, *away_lines(away), *drained_lines(drained), *host_lines(have.get("Hosts", {}))):
        echo(line)
    echo("")


def _counts(stats: dict[str, int], what: str) -> list[str]:
    """Counts in the order of the columns."""
    return [str(count) for count in counts(stats, what).values()]
