"""`qcg-pm logs`: what jobs write."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import any_character, say, tell
from qcg.pilotjob.cli.errors import Denial
from qcg.pilotjob.cli.manager_lookup import current_run_dir, names_of, on_manager_or_registry, with_suggestion
from qcg.pilotjob.cli.output_files import Follower, path_of, show_end
from qcg.pilotjob.cli.param_types import Whole
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.common.printable import printable

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries


@click.command("logs")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names())
@click.option("-f", "--follow", is_flag=True, help="Go on showing what is written, until the job has ended.")
@click.option("-e", "--stderr", is_flag=True, help="Show what it writes to its standard error.")
@click.option("-n", "--lines", type=Whole(min=0), metavar="N", help="Only the last N lines.")
@click.option("--raw", is_flag=True, help="On a terminal, too, show every byte as the job wrote it.")
@on_manager_or_registry
def command(manager: Queries, names: tuple[str, ...], follow: bool, stderr: bool, lines: int | None, raw: bool) -> int:
    """Show the file that a job writes its output to: the `stdout`, or `stderr`, of its description.

    Without one, show what was kept of a job that failed, or of any job with --keep-output of the run.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*').

    A terminal shows colours; other control characters are escaped, unless --raw is given. Files and pipes get every
    byte as it is.
    """
    any_character()
    stream = "stderr" if stderr else "stdout"
    wanted = names_of(manager, names)
    if follow:
        if len(wanted) > 1:
            raise click.UsageError(f"only one job can be followed, and {' '.join(names)} means {len(wanted)}")
        follower = Follower(manager, wanted[0], current_run_dir())
        if not follower.follow(stream, lines, raw=raw):
            _tell_nothing(wanted[0], follower.info(), stream)
        return 0
    code = 0
    for name, entry in manager.info(wanted)["jobs"].items():
        try:
            path = path_of(name, entry, stream)
            if len(wanted) > 1:
                say(printable(f"==> {name}: {path} <=="))
            if not show_end(path, lines, raw=raw):
                _tell_nothing(name, entry, stream)
        except Denial as problem:
            tell(printable(f"Error: {with_suggestion(manager, problem.message)}"))
            code = 1
    return code


def _tell_nothing(name: str, entry: dict[str, Any], stream: str) -> None:
    """An empty answer looks like a command that did not work. Say where there may be more, by the job's entry of
    `jobInfo`."""
    info = entry.get("data", {})  # nothing of a job that was removed meanwhile
    if stream == "stdout" and _has_content(info, "stderr"):
        further = f"; see: qcg-pm logs --stderr {name}"
    elif info.get("status") == "FAILED":
        further = f"; see: qcg-pm why {name}"
    else:
        further = ""
    tell(printable(f"{name} has no output on its {stream}{further}"))


def _has_content(info: dict[str, Any], stream: str) -> bool:
    """Whether a job has written to a stream."""
    path = info.get("runtime", {}).get(stream)
    try:
        return path is not None and os.stat(path).st_size > 0
    except OSError:
        return False
