"""`qcg-pm report DIR`: show the report on a run."""

from __future__ import annotations

from pathlib import Path

import click

from qcg.pilotjob.cli.console import echo_err, echo_styled
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.report_exports import Exports, export_options, write_exports
from qcg.pilotjob.cli.tables import json_option
from qcg.pilotjob.cli.target_options import directory_option
from qcg.pilotjob.report.analysis import analyse
from qcg.pilotjob.report.attempt_files import open_registry
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.launch_analysis import LaunchAnalysis, analyse_launches
from qcg.pilotjob.report.render import print_report, render_json
from qcg.pilotjob.report.render_analysis import print_analysis
from qcg.pilotjob.runs.discovery import ForeignRunError, find_runs, find_unfinished_runs, why_not_own_run


@click.command("report")
@json_option
@export_options
@directory_option
@click.option("--analysis", is_flag=True, help="Show gaps between attempts on cores, efficiency and launch times.")
def command(directory: Path, as_json: bool, analysis: bool, exports: Exports) -> None:
    """Show what happened in a run: states, times, core utilisation, the slowest and the failed jobs.

    DIRECTORY is a run directory, or a working directory, whose newest run is used; by default, QCG_PJM_DIR
    or the current directory. The run may have ended, crashed, or be running. Options that write a file
    replace the printed report, unless --json is given.
    """
    try:
        write_exports(directory, exports)
        if as_json or analysis or not exports:
            show_report(directory, as_json=as_json, analysis=analysis)
        for note in _notes(directory):
            echo_err(note)
    except ReportError as error:
        raise Refusal(str(error)) from None


def _notes(directory: Path) -> list[str]:
    """Notes about runs with unfinished jobs, and about runs of other users."""
    try:
        return [*(f"Note: {left}." for left in find_unfinished_runs(directory)), *find_runs(directory).notices()]
    except ForeignRunError:
        reason = why_not_own_run(directory)
        return [f"Note: {directory.absolute()} is not your run: {reason}. What its registry says was not checked."]


def show_report(directory: Path, *, as_json: bool, ended: bool = False, analysis: bool = False) -> None:
    """Print the report on a run. `ended`: the caller knows that its manager has ended."""
    report = analyse(directory, ended=ended)
    launches = _analysis(directory) if analysis else None
    if as_json:
        echo_styled(render_json(report, **({} if launches is None else {"analysis": launches})).rstrip("\n"))
        return
    from rich.console import Console

    console = Console()
    with console.capture() as capture:
        print_report(report, console)
        if launches is not None:
            print_analysis(launches, console)
    echo_styled(capture.get().rstrip("\n"))


def _analysis(directory: Path) -> LaunchAnalysis:
    with open_registry(directory) as (connection, _, _):
        return analyse_launches(connection)
