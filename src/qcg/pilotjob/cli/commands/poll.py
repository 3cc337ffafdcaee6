"""`qcg-pm poll`: ask remote hosts for the states of jobs now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.manager_lookup import expand_names, on_manager, with_similar_name
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option, show_json
from qcg.pilotjob.common.printable import printable

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager


@click.command("poll")
@click.argument("names", nargs=-1, shell_complete=job_names(final=False))
@click.option("--host", metavar="NAME", help="Ask this remote host.")
@json_option
@on_manager
def command(manager: Manager, names: tuple[str, ...], host: str | None, as_json: bool) -> int:
    """Ask the remote hosts of jobs for their states, without waiting for the next poll, and show the states of the
    jobs.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*'). Without NAMES and --host, all hosts are
    asked.
    """
    if host is not None and names:
        raise click.UsageError("name either jobs, or a host with --host")
    answer = manager.poll(expand_names(manager, names) if names else (), host)
    if as_json:
        show_json(answer)
        return 0
    code = 0
    if not names:
        for name, state in manager.hosts().items():
            echo(printable(f"{name} {state['state']}" + (f": {state['error']}" if "error" in state else "")))
    for name, entry in answer["jobs"].items():
        if entry["status"] == 0:
            echo(printable(f"{name} {entry['data']['status']}"))
        else:
            echo_err(printable(f"Error: {with_similar_name(manager, entry['message'])}"))
            code = 1
    return code
