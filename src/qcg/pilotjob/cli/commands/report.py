"""`qcg-pm report DIR`: what happened in a run."""

from __future__ import annotations

from pathlib import Path

import click

from qcg.pilotjob.cli.console import say_styled, tell
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.tables import json_option
from qcg.pilotjob.cli.target_options import directory_option
from qcg.pilotjob.report.analysis import analyse
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.render import print_report, render_json
from qcg.pilotjob.runs.discovery import ForeignRunError, find_runs, left_runs, why_not_own_run


@click.command("report")
@json_option
@directory_option
def command(directory: Path, as_json: bool) -> None:
    """Show what happened in a run: states, times, core utilisation, the slowest and the failed jobs.

    DIRECTORY is a run directory, or a working directory, whose newest run is taken; by default, that of
    QCG_PJM_DIR, or this one. The run may be over, crashed or still going on.
    """
    try:
        show_report(directory, as_json=as_json)
        for note in _notes(directory):
            tell(note)
    except ReportError as error:
        raise Refusal(str(error)) from None


def _notes(directory: Path) -> list[str]:
    """Runs that were left with jobs, runs of other users, and whose run this is."""
    try:
        return [*(f"Note: {left}." for left in left_runs(directory)), *find_runs(directory).notices()]
    except ForeignRunError:
        reason = why_not_own_run(directory)
        return [f"Note: {directory.absolute()} is not your run: {reason}. What its registry says was not checked."]


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
