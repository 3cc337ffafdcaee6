"""`qcg-pm hold`: keep waiting jobs from being started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.bulk_action import apply_to_jobs
from qcg.pilotjob.cli.manager_lookup import on_manager_or
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager


@click.command("hold")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names(final=False))
@json_option
@on_manager_or("To hold jobs of it, open it with {serve}.")
def command(manager: Manager, names: tuple[str, ...], as_json: bool) -> int:
    """Hold waiting jobs and iterations: they are not started until they are released.

    Running jobs are not affected. For a job with iterations, its waiting iterations are held.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*'). These match only jobs
    that can be held.
    """
    return apply_to_jobs(manager, names, manager.hold, "held", final=False, as_json=as_json, lenient=True)
