"""`qcg-pm validate FILE`: check a request file without running anything."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.host_options import configured_hosts, hosts_option
from qcg.pilotjob.cli.options import NAMED_HELP, check_named, resolve_cores
from qcg.pilotjob.cli.param_types import Whole
from qcg.pilotjob.cli.request_problems import problems_of
from qcg.pilotjob.cli.tables import json_option, show_json
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.find import find_nodes
from qcg.pilotjob.cluster.local.virtual_nodes import MOST_CORES
from qcg.pilotjob.common.exit_codes import FAILURE
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.description import requests
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.interfaces.file import FileError, read_requests
from qcg.pilotjob.manager.named_counters import counters_of_run, with_named_counters
from qcg.pilotjob.manager.remote_hosts import node_specs

MOST_WARNINGS = 50
"""Most warnings that are shown: a mistake is often repeated in every job of a large file."""


@click.command("validate")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--cores",
    type=Whole(1, MOST_CORES),
    metavar="N",
    help="Check against one node with N cores; the same as --nodes N.",
)
@click.option(
    "--nodes",
    help="Check against these nodes, not this machine or allocation: 2x4 is two nodes with four cores each, 4 is one"
    " node with four cores; also n1:2, 4,2,2 or n1:4,n2:4.",
)
@click.option("--resource", "named", multiple=True, metavar="NAME=N", callback=check_named, help=NAMED_HELP)
@hosts_option
@json_option
@click.pass_context
def command(context: click.Context, /, file: Path, hosts_file: str | None, as_json: bool, **given: Any) -> None:
    """Check FILE: its form, its jobs, their names and dependencies, and whether they fit into the nodes. - means
    standard input.

    Shows all problems with their positions, and warns about values that are allowed but probably a mistake. Exit
    code 0: no problems. 1: problems. 2: the file cannot be read.
    """
    resolve_cores(given)
    try:
        found = read_requests(file)
        nodes = with_named_counters(find_nodes("auto", given["nodes"], os.environ).specs, given["named"])
        nodes += node_specs(configured_hosts(context, hosts_file))
        counters = counters_of_run(given["named"], nodes)
    except (FileError, ClusterError, UsageError) as error:
        raise Refusal(str(error)) from None
    core = Core(nodes, counters=counters)
    warnings: list[str] = []
    problems = problems_of(found, core, warnings)
    jobs = max(len(core.state.jobs), _described(found))
    if as_json:
        show_json(
            {
                "file": str(file),
                "valid": not problems,
                "requests": len(found),
                "jobs": jobs,
                "nodes": len(core.state.pool.local.nodes),
                "cores": core.state.pool.total_cores,
                "problems": problems,
                "warnings": warnings,
            }
        )
        sys.exit(FAILURE if problems else 0)
    for line in (*problems, *(f"Warning: {warning}" for warning in warnings[:MOST_WARNINGS])):
        echo_err(line)
    if len(warnings) > MOST_WARNINGS:
        further = pluralize(len(warnings) - MOST_WARNINGS, "more warning")
        echo_err(f"... and {further}, most likely of the same kind.")
    against = (
        f"{pluralize(core.state.pool.total_cores, 'core')} on {pluralize(len(core.state.pool.local.nodes), 'node')}"
    )
    counts = f"{pluralize(len(found), 'request')}, {pluralize(jobs, 'job')}, {pluralize(len(problems), 'problem')}"
    counts += f", {pluralize(len(warnings), 'warning')}" if warnings else ""
    echo(f"{file}: {counts}; checked against {against}")
    sys.exit(FAILURE if problems else 0)


def _described(found: list[msgspec.Raw]) -> int:
    """Number of described jobs, including jobs of refused submits."""
    jobs = 0
    for raw in found:
        with suppress(DescriptionError):
            request = requests.decode_request(raw)
            jobs += len(request.jobs) if isinstance(request, requests.Submit) else 0
    return jobs
