"""`qcg-pm jobs`: list jobs with their states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.json_records import listed_jobs
from qcg.pilotjob.cli.manager_lookup import Registry, on_manager_or_registry, print_missing
from qcg.pilotjob.cli.name_patterns import expand
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option, show_json, show_table
from qcg.pilotjob.core.job_states import State

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries

STATES: dict[str, tuple[str, ...]] = {
    **{state.name: (state.name,) for state in State},
    "waiting": ("QUEUED", "SCHEDULED"),
    "running": ("EXECUTING",),
    "succeeded": ("SUCCEED",),
    "cancelled": ("CANCELED",),
    "finished": tuple(state.name for state in State if state.is_final),
}
"""States by their names, and by the words of `qcg-pm status`."""


@click.command("jobs")
@click.argument("names", nargs=-1, shell_complete=job_names())
@click.option(
    "-s",
    "--state",
    "states",
    multiple=True,
    type=click.Choice(list(STATES), case_sensitive=False),
    metavar="STATE",
    help=f"Only jobs in this state; may be given several times: {', '.join(STATES)}.",
)
@json_option
@on_manager_or_registry
def command(manager: Queries, names: tuple[str, ...], states: tuple[str, ...], as_json: bool) -> int:
    """List jobs with their states: all jobs, or those with these NAMES.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*').
    """
    jobs = manager.list()
    code = 0
    if names:
        jobs, code = _chosen(manager, jobs, names)
    if states:
        chosen = {name for word in states for name in STATES[word]}
        jobs = {name: job for name, job in jobs.items() if job["status"] in chosen}
    if as_json:
        show_json(listed_jobs(jobs))
    elif jobs:
        rows = [(name, job["status"], _remark(job)) for name, job in jobs.items()]
        show_table(["name", "state", "message"] if any(row[2] for row in rows) else ["name", "state", ""], rows)
    elif not code:
        echo("There are no such jobs." if names or states else "There are no jobs.")
    return code


def _remark(job: dict[str, Any]) -> str:
    if "heldSince" in job:
        return f"held since {job['heldSince']}"
    message: str = job.get("messages", "")
    return message


def _chosen(manager: Queries, listed: dict[str, Any], names: tuple[str, ...]) -> tuple[dict[str, Any], int]:
    """Select jobs from the list. Iterations and unknown names need a second request."""
    wanted = expand(names, Registry(manager, listed))
    others = [name for name in wanted if name not in listed]
    answer = manager.status(others)["jobs"] if others else {}
    chosen: dict[str, Any] = {}
    for name in wanted:
        if name in listed:
            chosen[name] = listed[name]
        elif answer[name]["status"] == 0:
            data = answer[name]["data"]
            chosen[name] = {key: data[key] for key in ("status", "heldSince") if key in data}
    return chosen, print_missing(manager, answer)
