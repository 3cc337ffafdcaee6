"""`qcg-pm report DIR`: what happened in a run."""

from __future__ import annotations

from pathlib import Path

import click

from qcg.pilotjob.cli.refusing import Refusal
from qcg.pilotjob.cli.saying import say_styled, tell
from qcg.pilotjob.cli.showing import json_option
from qcg.pilotjob.cli.target import directory_of
from qcg.pilotjob.report.analysis import analyse
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.render import print_report, render_json
from qcg.pilotjob.runs import left_runs


@click.command("report")
@click.argument("directory", type=click.Path(path_type=Path, readable=False), required=False)
@json_option
@click.pass_context
def command(context: click.Context, /, directory: Path | None, as_json: bool) -> None:
    """Show what happened in a run: states, times, core utilisation, the slowest and the failed jobs.

    DIRECTORY is a run directory, or a working directory, whose newest run is taken; by default, that of
    QCG_PJM_DIR, or this one. The run may be over, crashed or still going on.
    """
    found = directory_of(context, directory)
    try:
        show_report(found, as_json=as_json)
        for left in left_runs(found):
            tell(f"Note: {left}.")
    except ReportError as error:
        raise Refusal(str(error)) from None


def show_report(directory: Path, *, as_json: bool, ended: bool = False) -> None:
    """`ended`: it is known that no manager is at work any more."""
    report = analyse(directory, ended=ended)
    if as_json:
        say_styled(render_json(report).rstrip("\n"))
        return
    from rich.console import Console

    console = Console()
    with console.capture() as capture:
        print_report(report, console)
    say_styled(capture.get().rstrip("\n"))
