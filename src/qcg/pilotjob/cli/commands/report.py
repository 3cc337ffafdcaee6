"""`qcg-pm report DIR`: show the report on a run."""

from __future__ import annotations

from pathlib import Path

import click

from qcg.pilotjob.cli.console import echo_err
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.report_exports import Exports, export_options, write_exports
from qcg.pilotjob.cli.report_output import show_report
from qcg.pilotjob.cli.tables import json_option
from qcg.pilotjob.cli.target_options import directory_option
from qcg.pilotjob.report.errors import ReportError
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
