"""`qcg-pm why`: explain why jobs wait or failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.explanations import after_state
from qcg.pilotjob.cli.json_records import renamed
from qcg.pilotjob.cli.manager_lookup import expand_names, on_manager_or_registry, print_missing
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option, show_json
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.report.tail import leading_to

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries


@click.command("why")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names())
@json_option
@on_manager_or_registry
def command(manager: Queries, names: tuple[str, ...], as_json: bool) -> int:
    """Explain why jobs wait or failed, or where they run, with the last lines of their output.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*').
    """
    jobs = manager.why(expand_names(manager, names))["jobs"]
    known = {name: entry["data"] for name, entry in jobs.items() if entry["status"] == 0}
    if as_json:
        show_json({name: renamed(explanation) for name, explanation in known.items()})
    else:
        for explanation in known.values():
            _show(explanation)
    return print_missing(manager, jobs)


def _show(explanation: dict[str, Any]) -> None:
    fields = explanation.get("first", explanation)
    tail = fields.get("lastLines", [])
    sentence = f"{explanation['jobName']} {explanation['status']}: {after_state(explanation['sentence'])}"
    head = printable(leading_to(sentence, fields["lastLinesOf"]) if tail else sentence)
    echo("\n".join([head, *(f"    {line}" for line in tail)]))
