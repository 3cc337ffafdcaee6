"""Prints the report on a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qcg.pilotjob.cli.console import echo_lines, echo_styled
from qcg.pilotjob.report.analysis import analyse
from qcg.pilotjob.report.render import render_json, report_lines

if TYPE_CHECKING:
    from qcg.pilotjob.report.launch_analysis import LaunchAnalysis


def show_report(directory: Path, *, as_json: bool, ended: bool = False, analysis: bool = False) -> None:
    """Print the report on a run. `ended`: the caller knows that its manager has ended."""
    report = analyse(directory, ended=ended)
    launches = _analysis(directory) if analysis else None
    if as_json:
        echo_styled(render_json(report, **({} if launches is None else {"analysis": launches})).rstrip("\n"))
        return
    lines = report_lines(report)
    if launches is not None:
        from qcg.pilotjob.report.render_analysis import analysis_lines

        lines += analysis_lines(launches)
    echo_lines(lines)


def _analysis(directory: Path) -> LaunchAnalysis:
    # Here, because the end of every run loads this module.
    from qcg.pilotjob.report.attempt_files import open_registry
    from qcg.pilotjob.report.launch_analysis import analyse_launches

    with open_registry(directory) as (connection, _, _):
        return analyse_launches(connection)
