"""`qcg-pm run FILE`: run a request file and wait for all its jobs."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from qcg.pilotjob.cli.options import shared
from qcg.pilotjob.cli.saying import tell
from qcg.pilotjob.executors.spare import SpareAgent, is_wanted
from qcg.pilotjob.going_on import is_followed


@click.command("run")
@click.argument("file", required=False)
@click.option("--no-net", is_flag=True, help="No network interface: no other command can talk to this run.")
@shared
@click.pass_context
def command(context: click.Context, /, file: str | None, no_net: bool, **given: Any) -> None:
    """Run the requests of FILE and wait for all jobs. Shows progress and a closing table.

    Exit code 0: all jobs succeeded. 1: a job did not, or a request was refused. 2: it could not begin. 4: its time was
    over, and jobs are left for --resume.
    """
    if file is None and not given["resume"]:
        raise click.UsageError("give a request FILE, or a run to continue with --resume PATH")
    fixed: dict[str, Any] = {"wait": True, "net": not no_net}
    if file is not None:
        fixed["file_path"] = file
    followed = is_followed()
    with SpareAgent(wanted=is_wanted(given["resources"], given["nodes"], given["resume"], os.environ)) as spare:
        # Here, so that both processes load at once.
        from qcg.pilotjob.cli.progress import Progress
        from qcg.pilotjob.cli.report import show_report
        from qcg.pilotjob.cli.running import run_service
        from qcg.pilotjob.report.errors import ReportError

        progress = Progress()
        ending = run_service(context, given, fixed, progress.start, progress.stop, spare)
    if ending.refusals:
        nothing = "" if sum(ending.counts) else ", and nothing was run"
        were = "request was" if len(ending.refusals) == 1 else "requests were"
        tell(f"Error: {len(ending.refusals)} {were} refused{nothing}:")
    for refusal in ending.refusals:
        tell(refusal)
    try:
        show_report(ending.run_dir, as_json=False, ended=True)
    except ReportError as error:
        tell(str(error))
    if ending.continued == 0:
        tell("There was nothing to continue: all jobs of this run had ended. A new run runs them again.")
    earlier = ending.request_errors - len(ending.refusals)
    if earlier:
        were = "request was" if earlier == 1 else "requests were"
        tell(f"{earlier} {were} refused before this run was resumed; service.log says why.")
    if ending.left:
        tell(ending.how_it_was_left())
    elif ending.suspended:
        tell(ending.what_is_left(followed=followed))
    if ending.trouble:
        tell(f"The run could not go on: {ending.trouble}")
    sys.exit(ending.exit_code)
