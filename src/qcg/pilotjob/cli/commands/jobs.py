"""`qcg-pm jobs`: list jobs with their states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.json_records import listed_jobs
from qcg.pilotjob.cli.manager_lookup import Registry, on_manager_or_registry, print_missing
from qcg.pilotjob.cli.name_patterns import NoSuchName, expand, is_pattern, literal
from qcg.pilotjob.cli.param_types import Whole
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option, show_json, show_table
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.core.job_states import State

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries

LIMIT = 1000
"""Jobs on a page."""
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
@click.option("--limit", type=Whole(1), metavar="N", default=LIMIT, help=f"List at most N jobs [{LIMIT}].")
@click.option("--after", metavar="NAME", help="List the jobs that follow this one.")
@click.option("--all", "everything", is_flag=True, help="List all jobs, whatever their number.")
@json_option
@on_manager_or_registry
def command(
    manager: Queries,
    names: tuple[str, ...],
    states: tuple[str, ...],
    limit: int,
    after: str | None,
    everything: bool,
    as_json: bool,
) -> int:
    """List jobs with their states: all jobs, or the jobs NAMES, in the order of submission.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*').
    """
    chosen = list(dict.fromkeys(name for word in states for name in STATES[word]))
    most = None if everything else limit
    code, more = 0, False
    if len(names) > 1 or any(":" in name or not is_pattern(name) for name in names):
        jobs, more, code = _named(manager, names, chosen, after, most)
    elif not names and not chosen and after is None and everything:
        jobs = manager.list()
    else:
        page = manager.list_page(after, most, states=chosen or None, pattern=names or None)
        jobs, more = page["jobs"], page["more"]
        if names and not jobs and not manager.list_page(limit=1, pattern=names)["jobs"]:
            raise NoSuchName(f"no job matches {names[0]!r}")
    if as_json:
        show_json({**listed_jobs(jobs), **({"more": True} if more else {})})
    elif jobs:
        rows = [(name, job["status"], _remark(job)) for name, job in jobs.items()]
        show_table(["name", "state", "message"] if any(row[2] for row in rows) else ["name", "state", ""], rows)
    elif not code:
        echo("There are no such jobs." if names or states or after else "There are no jobs.")
    if more:
        last = next(reversed(jobs))
        echo_err(printable(f"These are {len(jobs)} jobs. For more: --after {last}, --limit N, or --all"))
    return code


def _remark(job: dict[str, Any]) -> str:
    if "heldSince" in job:
        return f"held since {job['heldSince']}"
    message: str = job.get("messages", "")
    return message


def _named(
    manager: Queries, names: tuple[str, ...], states: list[str], after: str | None, most: int | None
) -> tuple[dict[str, Any], bool, int]:
    """Jobs and iterations by names, in the order given: the next ones, whether there are more, and the exit code."""
    wanted = list(expand(names, Registry(manager)))
    if after in wanted:
        wanted = wanted[wanted.index(after) + 1 :]
    known: dict[str, Any] = manager.list_page(limit=None, pattern=[literal(name) for name in wanted])["jobs"]
    others = [name for name in wanted if name not in known]
    answer = manager.status(others)["jobs"] if others else {}
    chosen: dict[str, Any] = {}
    for name in wanted:
        if name in known:
            chosen[name] = known[name]
        elif answer[name]["status"] == 0:
            data = answer[name]["data"]
            chosen[name] = {key: data[key] for key in ("status", "heldSince", "messages") if key in data}
    if states:
        chosen = {name: job for name, job in chosen.items() if job["status"] in states}
    more = most is not None and len(chosen) > most
    return dict(list(chosen.items())[:most]), more, print_missing(manager, answer)
