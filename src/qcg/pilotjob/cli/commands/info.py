"""`qcg-pm info`: show details of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.json_records import job_information
from qcg.pilotjob.cli.manager_lookup import expand_names, on_manager_or_registry, print_missing
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option, show_json
from qcg.pilotjob.common.printable import printable

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries


@click.command("info")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names())
@click.option("-i", "--iterations", is_flag=True, help="Show each iteration, too.")
@json_option
@on_manager_or_registry
def command(manager: Queries, names: tuple[str, ...], iterations: bool, as_json: bool) -> int:
    """Show details of jobs: their history, nodes and cores, files, and exit code.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*').
    """
    jobs = manager.info(expand_names(manager, names), withChilds=iterations)["jobs"]
    known = {name: entry["data"] for name, entry in jobs.items() if entry["status"] == 0}
    if as_json:
        show_json({name: job_information(info) for name, info in known.items()})
    elif known:
        echo("\n\n".join("\n".join(_lines(info)) for info in known.values()))
    return print_missing(manager, jobs)


def _lines(info: dict[str, Any]) -> list[str]:
    """The details of a job in the form of `jobs.report`."""
    lines = [printable(f"{info['jobName']} ({info['status']})")]
    lines += [f"    {line}" for line in info["history"].splitlines() if line]
    lines += _fields(info.get("runtime", {}), "    ")
    if "iterations" in info:
        lines.append("    iterations: " + ", ".join(f"{name} {count}" for name, count in info["iterations"].items()))
    if "messages" in info:
        lines.append(f"    messages: {printable(info['messages'])}")
    for child in info.get("childs", []):
        lines.append(f"    {printable(info['jobName'])}:{child['iteration']} ({child['state']})")
        lines += _fields(child["runtime"], "        ")
        if "messages" in child:
            lines.append(f"        messages: {printable(child['messages'])}")
    return lines


def _fields(runtime: dict[str, str], indent: str) -> list[str]:
    return [f"{indent}{name}: {printable(value)}" for name, value in runtime.items()]
