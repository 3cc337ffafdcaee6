"""`qcg-pm logs`: show or follow the output of jobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo, echo_err, escape_unencodable
from qcg.pilotjob.cli.errors import Denial
from qcg.pilotjob.cli.manager_lookup import current_run_dir, expand_names, on_manager_or_registry, with_similar_name
from qcg.pilotjob.cli.output_files import Follower, path_of, show_end
from qcg.pilotjob.cli.param_types import Whole
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.common.printable import printable

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries


@click.command("logs")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names())
@click.option("-f", "--follow", is_flag=True, help="Show new output until the job has ended.")
@click.option("-e", "--stderr", is_flag=True, help="Show the standard error.")
@click.option("-n", "--lines", type=Whole(min=0), metavar="N", help="Only the last N lines.")
@click.option("--raw", is_flag=True, help="Show every byte unchanged, also on a terminal.")
@on_manager_or_registry
def command(manager: Queries, names: tuple[str, ...], follow: bool, stderr: bool, lines: int | None, raw: bool) -> int:
    """Show the output file of a job: the `stdout`, or `stderr`, of its description.

    Without such a file, show the saved output: of a job that failed, or of any job of a run with --keep-output.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*').

    On a terminal, control characters other than colours are escaped, unless --raw is given. Files and pipes get every
    byte unchanged.
    """
    escape_unencodable()
    stream = "stderr" if stderr else "stdout"
    wanted = expand_names(manager, names)
    if follow:
        if len(wanted) > 1:
            raise click.UsageError(f"only one job can be followed, and {' '.join(names)} means {len(wanted)}")
        follower = Follower(manager, wanted[0], current_run_dir())
        if not follower.follow(stream, lines, raw=raw):
            _print_no_output(wanted[0], follower.info(), stream)
        return 0
    code = 0
    for name, entry in manager.info(wanted)["jobs"].items():
        try:
            path = path_of(name, entry, stream)
            if len(wanted) > 1:
                echo(printable(f"==> {name}: {path} <=="))
            if not show_end(path, lines, raw=raw):
                _print_no_output(name, entry, stream)
        except Denial as problem:
            echo_err(printable(f"Error: {with_similar_name(manager, problem.message)}"))
            code = 1
    return code


def _print_no_output(name: str, entry: dict[str, Any], stream: str) -> None:
    """Print that the output is empty, and where there may be more, by the job's entry of the `jobInfo` reply."""
    info = entry.get("data", {})  # no data when the job was removed meanwhile
    if stream == "stdout" and _has_content(info, "stderr"):
        further = f"; see: qcg-pm logs --stderr {name}"
    elif info.get("status") == "FAILED":
        further = f"; see: qcg-pm why {name}"
    else:
        further = ""
    echo_err(printable(f"{name} has no output on its {stream}{further}"))


def _has_content(info: dict[str, Any], stream: str) -> bool:
    """Whether a job has written to a stream."""
    path = info.get("runtime", {}).get(stream)
    try:
        return path is not None and os.stat(path).st_size > 0
    except OSError:
        return False
