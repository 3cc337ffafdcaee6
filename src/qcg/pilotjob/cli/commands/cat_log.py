"""`qcg-pm cat-log`: list, show or follow the log files of a job on a remote host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.console import echo, echo_err, escape_unencodable
from qcg.pilotjob.cli.errors import Denial
from qcg.pilotjob.cli.manager_lookup import expand_names, on_manager_or_registry, with_similar_name
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.common.printable import printable

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries

MODES = {"l": "list", "c": "cat", "t": "tail"}
FILES = {"o": "job.out", "e": "job.err", "s": "job.status", "j": "job"}


@click.command("cat-log")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names())
@click.option(
    "-m",
    "--mode",
    type=click.Choice([*MODES.values(), *MODES]),
    default="cat",
    help="List the files, show one, or follow it until the job has ended.",
)
@click.option(
    "-f",
    "--file",
    default="o",
    metavar="FILE",
    help="The file: o (job.out), e (job.err), s (job.status), j, or a name.",
)
@click.option("--raw", is_flag=True, help="Show every byte unchanged, also on a terminal.")
@on_manager_or_registry
def command(manager: Queries, names: tuple[str, ...], mode: str, file: str, raw: bool) -> int:
    """Show the log files of jobs on remote hosts, directly from their hosts.

    This works also when no manager is running. NAMES may hold patterns ('sim*') and iterations (job:3, 'job:*').
    """
    from qcg.pilotjob.cli.remote_logs import RemoteLogs

    escape_unencodable()
    mode, file = MODES.get(mode, mode), FILES.get(file, file)
    wanted = expand_names(manager, names)
    if mode == "tail" and len(wanted) > 1:
        raise click.UsageError(f"only one job can be followed, and {' '.join(names)} means {len(wanted)}")
    if manager.run_dir is None:
        raise Denial("the run directory of this manager is not known here; give it with --path")
    logs = RemoteLogs(manager.run_dir)
    code = 0
    for name, entry in manager.info(wanted)["jobs"].items():
        try:
            if entry["status"] != 0:
                raise Denial(entry["message"])
            if len(wanted) > 1:
                echo(printable(f"==> {name}: {file if mode != 'list' else 'files'} <=="))
            for found in logs.show(name, entry, mode, file, raw=raw):
                echo(printable(found))
        except Denial as problem:
            echo_err(printable(f"Error: {with_similar_name(manager, problem.message)}"))
            code = 1
    return code
