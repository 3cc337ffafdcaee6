"""Prints the report on a run."""

from __future__ import annotations

from pathlib import Path

from qcg.pilotjob.cli.console import echo_styled
from qcg.pilotjob.report.analysis import analyse
from qcg.pilotjob.report.attempt_files import open_registry
from qcg.pilotjob.report.launch_analysis import LaunchAnalysis, analyse_launches
from qcg.pilotjob.report.render import print_report, render_json
from qcg.pilotjob.report.render_analysis import print_analysis


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
