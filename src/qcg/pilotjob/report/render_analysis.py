"""Renders the analysis of launches and gaps as text."""

from __future__ import annotations

from qcg.pilotjob.common.styled_lines import Line, table_lines
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.report.formats import duration
from qcg.pilotjob.report.launch_analysis import LaunchAnalysis
from qcg.pilotjob.report.render import times_table

MOST_SHOWN = 5
MOST_NODES = 20
"""The most nodes that are listed: the nodes with the lowest efficiency."""


def analysis_lines(analysis: LaunchAnalysis) -> list[Line]:
    """The analysis as text, with an empty line before it."""
    empty = Line("")
    if not analysis.attempts:
        return [empty, Line("No attempt has started.")]
    # Times from submission to start are in the table of the report.
    lines = [empty, *times_table([("launch", analysis.launches), ("gap on a core", analysis.gaps)])]
    if analysis.efficiency is not None:
        sentence = f"Cores had an attempt for {analysis.efficiency:.1%} of the time between their first and last one"
        lines += [empty, Line(sentence)]
    lines += _nodes(analysis)
    hidden = len(analysis.nodes) - MOST_NODES
    if hidden > 0:
        lines.append(Line(f"... and {pluralize(hidden, 'node')} with a higher efficiency (see --json)"))
    if analysis.largest_gaps and analysis.largest_gaps[0].seconds > 0:
        lines += [empty, *_gaps(analysis)]
    if analysis.slowest_launches and analysis.slowest_launches[0].seconds > 0:
        lines += [empty, *_launches(analysis)]
    return lines


def _nodes(analysis: LaunchAnalysis) -> list[Line]:
    chosen = sorted(analysis.nodes, key=lambda node: 2.0 if node.efficiency is None else node.efficiency)[:MOST_NODES]
    names = {node.node for node in chosen}
    rows = [
        [
            node.node,
            node.cores,
            node.attempts,
            f"{node.busy_seconds / 3600:.3f}",
            f"{node.gap_seconds / 3600:.3f}",
            _percent(node.efficiency),
            _percent(node.utilisation),
        ]
        for node in analysis.nodes
        if node.node in names
    ]
    columns = ("cores", "attempts", "core-hours", "in gaps", "efficiency", "utilisation")
    return table_lines(["node", *columns], rows, columns)


def _gaps(analysis: LaunchAnalysis) -> list[Line]:
    rows = [
        [duration(gap.seconds)[:-3], f"{gap.node}[{gap.core}]", gap.before, gap.after]
        for gap in analysis.largest_gaps[:MOST_SHOWN]
    ]
    columns = ("core", "after", "before")
    return table_lines(["largest gaps", *columns], rows, columns)


def _launches(analysis: LaunchAnalysis) -> list[Line]:
    rows = []
    for launch in analysis.slowest_launches[:MOST_SHOWN]:
        name = launch.name if launch.attempt == 1 else f"{launch.name}, attempt {launch.attempt}"
        rows.append([duration(launch.seconds)[:-3], launch.node, name])
    columns = ("node", "attempt")
    return table_lines(["slowest launches", *columns], rows, columns)


def _percent(part: float | None) -> str:
    return "" if part is None else f"{part:.1%}"
