"""`qcg-pm cancel`: cancel waiting and running jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.bulk_action import apply_to_jobs
from qcg.pilotjob.cli.manager_lookup import on_manager_or
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager


@click.command("cancel")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names(final=False))
@json_option
@on_manager_or("To cancel jobs that are left, open it with {serve}.")
def command(manager: Manager, names: tuple[str, ...], as_json: bool) -> int:
    """Cancel waiting and running jobs and iterations, and kill all their processes.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*'). These match only jobs
    that have not ended.
    """
    return apply_to_jobs(manager, names, manager.cancel, "canceled", final=False, as_json=as_json)
