"""`qcg-pm status`: an overview of a running manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.finding import json_option, on_manager
from qcg.pilotjob.cli.saying import say
from qcg.pilotjob.cli.showing import show_json, show_table

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager

COLUMNS = {
    "total": "Total",
    "waiting": "InSchedule",
    "running": "Executing",
    "finished": "Finished",
    "failed": "Failed",
}


@click.command("status")
@json_option
@on_manager
def command(manager: Manager, as_json: bool) -> None:
    """Show how a running manager is: since when, where, how many cores are in use, how many jobs are in which state."""
    status = manager.system_status()
    if as_json:
        show_json(status)
        return
    system, have = status["System"], status["Resources"]
    nodes = "1 node" if have["TotalNodes"] == 1 else f"{have['TotalNodes']} nodes"
    say(f"Manager {system['InstanceId']} on {system['Host']}, since {system['Started'][:19]}, in {system['Wd']}")
    say(f"{have['UsedCores']} of {have['TotalCores']} cores on {nodes} in use")
    say("")
    rows = [["jobs", *_counts(status["JobStats"], "Jobs")]]
    if status["IterationStats"]["TotalIterations"]:
        rows.append(["iterations", *_counts(status["IterationStats"], "Iterations")])
    show_table(["", *COLUMNS], rows, right=list(COLUMNS))


def _counts(stats: dict[str, int], what: str) -> list[str]:
    return [str(stats[kind + what]) for kind in COLUMNS.values()]
