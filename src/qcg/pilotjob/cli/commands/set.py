"""`qcg-pm set`: change the requests of waiting jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.bulk_action import apply_to_jobs
from qcg.pilotjob.cli.manager_lookup import on_manager
from qcg.pilotjob.cli.param_types import PRIORITY, GpuCount
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager

_RANGE = re.compile(r"(\d+)-(\d+)", re.ASCII)


def _amount(context: click.Context, parameter: click.Parameter, given: str | None) -> Any:
    """A number, or `{"min", "max"}` of a range such as 2-8."""
    if given is None:
        return None
    if span := _RANGE.fullmatch(given):
        return {"min": int(span[1]), "max": int(span[2])}
    if given.isascii() and given.isdigit() and int(given):
        return int(given)
    raise click.BadParameter(f"{given!r} is no number such as 4, and no range such as 2-8")


@click.command("set")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names(final=False))
@click.option("--priority", type=PRIORITY, metavar="N", help="Jobs with higher priorities are started first.")
@click.option("--cores", metavar="N", callback=_amount, help="Cores, or cores on each node: 4, or a range 2-8.")
@click.option("--nodes", metavar="N", callback=_amount, help="Nodes: 2, or a range 1-4.")
@click.option("--gpus", type=GpuCount(), metavar="N", help="GPUs on each node: 2, or a part of one such as 0.5.")
@click.option("--mem", metavar="SIZE", help="Memory on each node, such as 2GB.")
@click.option("--wt", metavar="TIME", help="Wall time, such as 1h30m.")
@json_option
@on_manager
def command(
    manager: Manager,
    names: tuple[str, ...],
    priority: int | None,
    cores: Any,
    nodes: Any,
    gpus: float | None,
    mem: str | None,
    wt: str | None,
    as_json: bool,
) -> int:
    """Change the resource requests, wall times and priorities of waiting jobs. Options that are not given keep their
    values.

    NAMES may hold patterns ('sim*'). These match only jobs that can be changed.
    """
    given = {"priority": priority, "numCores": cores, "numNodes": nodes, "mem": mem, "wt": wt}
    changes = {key: value for key, value in given.items() if value is not None}
    if gpus is not None:
        changes["nodeCrs"] = {"gpu": gpus}
    if not changes:
        raise click.UsageError("give --priority, --cores, --nodes, --gpus, --mem or --wt")

    def action(chosen: list[str]) -> dict[str, Any]:
        return manager.set(chosen, **changes)

    return apply_to_jobs(manager, names, action, "changed", final=False, as_json=as_json, lenient=True)
