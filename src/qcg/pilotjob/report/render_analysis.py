"""Renders the analysis of launches and gaps as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.report.formats import duration
from qcg.pilotjob.report.launch_analysis import LaunchAnalysis
from qcg.pilotjob.report.render import durations_of, table_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MOST_SHOWN = 5
MOST_NODES = 20
"""The most nodes that are listed: the nodes with the lowest efficiency."""


def print_analysis(analysis: LaunchAnalysis, console: Console) -> None:
    from rich.text import Text

    def say(line: str) -> None:
        console.print(Text(printable(line)), soft_wrap=True)

    say("")
    if not analysis.attempts:
        say("No attempt has started.")
        return
    console.print(_times(analysis))
    if analysis.efficiency is not None:
        say("")
        say(f"Cores had an attempt for {analysis.efficiency:.1%} of the time between their first and last one")
    console.print(_nodes(analysis))
    hidden = len(analysis.nodes) - MOST_NODES
    if hidden > 0:
        say(f"... and {pluralize(hidden, 'node')} with a higher efficiency (see --json)")
    if analysis.largest_gaps and analysis.largest_gaps[0].seconds > 0:
        say("")
        console.print(_gaps(analysis))
    if analysis.slowest_launches and analysis.slowest_launches[0].seconds > 0:
        say("")
        console.print(_launches(analysis))


def _times(analysis: LaunchAnalysis) -> Table:
    """Times from submission to start are in the table of the report."""
    table = table_of("time", "least", "median", "mean", "95 %", "most")
    rows = (
        ("launch", analysis.launches),
        ("gap on a core", analysis.gaps),
    )
    for name, statistics in rows:
        if statistics is not None:
            table.add_row(name, *durations_of(statistics))
    return table


def _nodes(analysis: LaunchAnalysis) -> Table:
    from rich.text import Text

    table = table_of("node", "cores", "attempts", "core-hours", "in gaps", "efficiency", "utilisation")
    chosen = sorted(analysis.nodes, key=lambda node: 2.0 if node.efficiency is None else node.efficiency)[:MOST_NODES]
    names = {node.node for node in chosen}
    for node in analysis.nodes:
        if node.node in names:
            table.add_row(
                Text(printable(node.node)),
                str(node.cores),
                str(node.attempts),
                f"{node.busy_seconds / 3600:.3f}",
                f"{node.gap_seconds / 3600:.3f}",
                _percent(node.efficiency),
                _percent(node.utilisation),
            )
    return table


def _gaps(analysis: LaunchAnalysis) -> Table:
    from rich.text import Text

    table = table_of("largest gaps", "core", "after", "before")
    for gap in analysis.largest_gaps[:MOST_SHOWN]:
        names = Text(printable(gap.before)), Text(printable(gap.after))
        table.add_row(duration(gap.seconds)[:-3], Text(printable(f"{gap.node}[{gap.core}]")), *names)
    return table


def _launches(analysis: LaunchAnalysis) -> Table:
    from rich.text import Text

    table = table_of("slowest launches", "node", "attempt")
    for launch in analysis.slowest_launches[:MOST_SHOWN]:
        name = launch.name if launch.attempt == 1 else f"{launch.name}, attempt {launch.attempt}"
        table.add_row(duration(launch.seconds)[:-3], Text(printable(launch.node)), Text(printable(name)))
    return table


def _percent(part: float | None) -> str:
    return "" if part is None else f"{part:.1%}"
