"""`qcg-pm logs`: what jobs write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.finding import current_run_dir, names_of, on_manager
from qcg.pilotjob.cli.refusing import Denial
from qcg.pilotjob.cli.saying import say
from qcg.pilotjob.cli.streams import Follower, path_of, show_end

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager


@click.command("logs")
@click.argument("names", nargs=-1, required=True)
@click.option("-f", "--follow", is_flag=True, help="Go on showing what is written, until the job has ended.")
@click.option("-e", "--stderr", is_flag=True, help="Show what it writes to its standard error.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@on_manager
def command(manager: Manager, names: tuple[str, ...], follow: bool, stderr: bool, lines: int | None) -> int:
    """Show the file that a job writes its output to: the `stdout`, or `stderr`, of its description.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*').
    """
    stream = "stderr" if stderr else "stdout"
    wanted = names_of(manager, names)
    if follow:
        if len(wanted) > 1:
            raise click.UsageError(f"only one job can be followed, and {' '.join(names)} means {len(wanted)}")
        Follower(manager, wanted[0], current_run_dir()).follow(stream, lines)
        return 0
    code = 0
    for name, entry in manager.info(wanted)["jobs"].items():
        try:
            path = path_of(name, entry, stream)
            if len(wanted) > 1:
                say(f"==> {name}: {path} <==")
            show_end(path, lines)
        except Denial as problem:
            problem.show()
            code = 1
    return code
