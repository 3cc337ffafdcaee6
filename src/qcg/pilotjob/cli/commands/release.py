"""`qcg-pm release`: let held jobs be started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.bulk_action import apply_to_jobs
from qcg.pilotjob.cli.manager_lookup import on_manager_or
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager


@click.command("release")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names(final=False))
@json_option
@on_manager_or("To release held jobs and continue: {release}.")
def command(manager: Manager, names: tuple[str, ...], as_json: bool) -> int:
    """Release held jobs and iterations, so that they can be started.

    A job is released with all its iterations.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*'). These match only jobs
    that can be released.
    """
    return apply_to_jobs(manager, names, manager.release, "released", final=False, as_json=as_json, lenient=True)
