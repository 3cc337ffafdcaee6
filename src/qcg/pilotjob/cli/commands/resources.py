"""`qcg-pm resources`: show all nodes and cores, and the free ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.host_states import state_in_words
from qcg.pilotjob.cli.json_records import in_seconds
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
        show_json(in_seconds(have))
    else:
        columns = {"nodes": "total_nodes", "cores": "total_cores", "used": "used_cores", "free": "free_cores"}
        show_table(list(columns), [[have[key] for key in columns.values()]], right=list(columns))
        for line in (
            *named_lines(have.get("named", {}), have.get("gpus")),
            *away_lines(have.get("away", {})),
            *drained_lines(have.get("drained", {})),
            *host_lines(have.get("hosts", {})),
        ):
            echo(line)


def named_lines(named: dict[str, Any], gpus: dict[str, Any] | None = None) -> list[str]:
    """Lines about GPUs and named resources, from the `gpus` and `named` of a reply."""
    lines = [f"GPUs: {gpus['used']:g} of {gpus['total']} in use"] if gpus is not None else []
    for name, one in named.items():
        by_node = [f"{node}: {its['used']} of {its['total']}" for node, its in one.get("nodes", {}).items()]
        more = f" ({', '.join(by_node)})" if by_node else ""
        lines.append(f"{name}: {one['used']} of {one['total']} in use{more}")
    return lines


def away_lines(away: dict[str, Any]) -> list[str]:
    """Lines about nodes that are not available, from the `away` of a reply."""
    return [
        f"{name} is {node['state']} since {node['since'][:19]}, with {pluralize(node['cores'], 'core')}"
        for name, node in away.items()
    ]


def drained_lines(drained: dict[str, Any]) -> list[str]:
    """Lines about nodes that get no new jobs, from the `drained` of a reply."""
    return [
        f"{name} is drained since {node['since'][:19]}, {node['used']} of {pluralize(node['cores'], 'core')} in use:"
        f" {node['reason']}"
        for name, node in drained.items()
    ]


def host_lines(hosts: dict[str, Any]) -> list[str]:
    """Lines about remote hosts, from the `hosts` of a reply."""
    lines = []
    for name, host in hosts.items():
        what = pluralize(host["cores"], "job slot" if host.get("slots") else "core")
        error = f": {host['error']}" if "error" in host else ""
        lines.append(f"host {name}: {host['used']} of {what} used; {state_in_words(host)}{error}")
    return lines
