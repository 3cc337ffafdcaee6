"""`qcg-pm why`: what jobs wait for, or why they failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import say
from qcg.pilotjob.cli.json_records import renamed
from qcg.pilotjob.cli.manager_lookup import names_of, on_manager_or_registry, tell_missing
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option, show_json
from qcg.pilotjob.common.printable import printable

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries


@click.command("why")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names())
@json_option
@on_manager_or_registry
def command(manager: Queries, names: tuple[str, ...], as_json: bool) -> int:
    """Say what jobs wait for, where they run, or why they failed, with the end of their errors.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*').
    """
    jobs = manager.why(names_of(manager, names))["jobs"]
    known = {name: entry["data"] for name, entry in jobs.items() if entry["status"] == 0}
    if as_json:
        show_json({name: renamed(told) for name, told in known.items()})
    else:
        for told in known.values():
            _show(told)
    return tell_missing(manager, jobs)


def _show(told: dict[str, Any]) -> None:
    fields = told.get("first", told)
    tail = fields.get("lastLines", [])
    colon = f"; the end of {fields['lastLinesOf']}:" if tail else ""
    lines = [printable(f"{told['jobName']} {told['status']}: {told['sentence']}{colon}")]
    say("\n".join([*lines, *(f"    {line}" for line in tail)]))
