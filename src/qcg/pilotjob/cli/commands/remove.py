"""`qcg-pm remove`: remove jobs that have ended from the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.bulk_action import apply_to_jobs
from qcg.pilotjob.cli.manager_lookup import on_manager
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager


@click.command("remove")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names(final=True))
@json_option
@on_manager
def command(manager: Manager, names: tuple[str, ...], as_json: bool) -> int:
    """Remove jobs that have ended, so that their names are free again.

    NAMES may hold patterns ('sim*'). These match only jobs that have ended.
    """
    return apply_to_jobs(manager, names, manager.remove, "removed", final=True, as_json=as_json)
