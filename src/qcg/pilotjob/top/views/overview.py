"""The overview: progress, expected end, utilisation, nodes, and groups of failed and of waiting jobs."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len
from rich.text import Text

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.report.run_summary import History, NodeSummary, RunSummary
from qcg.pilotjob.top.bars import BAR_ORDER, fill_bar, graph, level, resample, state_bar
from qcg.pilotjob.top.model import Look, Model
from qcg.pilotjob.top.text import (
    WORDS,
    cut,
    number,
    padded,
    percent,
    rule,
    short_clock,
    shown,
    span,
    style_of,
    symbol,
)
from qcg.pilotjob.top.views.body import beside
from qcg.pilotjob.top.views.groups import group_lines, height_of_all

FINAL = tuple(state.name for state in State if state.is_final)
WIDE = 120
"""Columns from which on two graphs stand side by side."""
ROOMY = 32
"""Lines from which on blank ones separate the parts."""


def overview(model: Model, width: int, height: int) -> list[Text]:
    summary = model.summary
    if summary is None:
        return [Text(), Text("  Reading the run ...", style="dim")]
    inner = width - 2
    air = [Text()] if height >= ROOMY else []
    lines = [*air, *_progress(model, summary, inner), *_notices(summary, inner, model.look), *air]
    nodes_width = max(24, min(64, inner // 3))
    groups_width = inner - nodes_width - 3
    if height >= 12:
        wanted = max(1 + len(summary.nodes), height_of_all(model, groups_width)) + len(air)
        rows = min(height // 4, max(height // 6, height - len(lines) - wanted - 3))
        lines += [*_graphs(model, summary, inner, max(2, rows)), *air]
    left = height - len(lines)
    if left > 1:
        nodes = _nodes(summary, nodes_width, left, model.look)
        found = group_lines(model, summary, groups_width, left)
        lines += beside(nodes, found, nodes_width, 3, left)
    return [Text.assemble(" ", line) for line in lines]


def _progress(model: Model, summary: RunSummary, width: int) -> list[Text]:
    look, units = model.look, summary.units
    total = sum(units.values())
    if not total:
        return [Text(), Text("There are no jobs yet." if summary.alive else "There are no jobs."), Text()]
    final = sum(units.get(state, 0) for state in FINAL)
    share = percent(final, total)
    counts = f" {share}  {number(final)} of {number(total)}"
    return [
        Text.assemble(state_bar(units, width - len(counts) - 1, look), (counts, "bold")),
        *legend(units, width, look),
        padded(_pace(model, summary), width),
    ]


def legend(counts: Mapping[str, int], width: int, look: Look) -> list[Text]:
    """The number of jobs in each state, in as many lines as it takes."""
    parts = [
        Text(f"{symbol(state, look)} {number(counts[state])} {WORDS[state]}", style_of(state))
        for state in BAR_ORDER
        if counts.get(state)
    ]
    gap = "   " if sum(part.cell_len + 3 for part in parts) <= width + 3 else "  "
    lines = [Text()]
    for part in parts:
        if lines[-1] and lines[-1].cell_len + len(gap) + part.cell_len > width:
            lines.append(part)
        else:
            lines[-1] = Text.assemble(lines[-1], gap if lines[-1] else "", part)
    return lines


def _pace(model: Model, summary: RunSummary) -> Text:
    """When the run ends, and how fast it goes."""
    line = Text()
    separator = "  |  " if model.look.ascii else "  │  "
    estimate = summary.estimate
    if summary.ended is not None:
        took = "" if summary.started is None else f" after {span(summary.ended - summary.started)}"
        what = "all jobs ended" if summary.alive else "ended"
        line.append(f"{what} at {short_clock(summary.ended, model.now)}{took}")
    elif estimate is not None and summary.alive:
        line.append(f"ends in {span(estimate.at - model.now)}", "bold")
        line.append(f", at {short_clock(estimate.at, model.now)}")
        earliest, latest = (short_clock(at, model.now) for at in (estimate.earliest, estimate.latest))
        if earliest != latest:
            line.append(f" ({earliest} to {latest})", "dim")
    elif summary.alive:
        line.append("no estimate of the end yet", "dim")
    else:
        line.append("the manager ended before all jobs did", "yellow")
    if summary.rates is not None and summary.alive:
        line.append(separator, "dim")
        line.append(f"{_rate(summary.rates.ends)} ended, {_rate(summary.rates.starts)} started")
    return line


def _rate(per_second: float) -> str:
    if per_second >= 10:
        return f"{per_second:,.0f}/s"
    if per_second >= 0.1 or per_second == 0:
        return f"{per_second:.1f}/s"
    return f"{per_second * 60:.1f}/min" if per_second * 60 >= 0.1 else f"{per_second * 3600:.1f}/h"


def _notices(summary: RunSummary, width: int, look: Look) -> list[Text]:
    stalled = ("The registry cannot be written, so nothing is started: see service.log.",) if summary.stalled else ()
    return [Text(cut(f"! {text}", width, look), "yellow") for text in (*stalled, *summary.notices)[:3]]


def _graphs(model: Model, summary: RunSummary, width: int, height: int) -> list[Text]:
    if width < WIDE:
        return _utilisation(model, summary, width, height)
    half = (width - 3) // 2
    left = _utilisation(model, summary, half, height)
    right = _throughput(model, summary, width - 3 - half, height)
    return beside(left, right, half, 3, len(left))


def _utilisation(model: Model, summary: RunSummary, width: int, height: int) -> list[Text]:
    title = Text.assemble(("Cores", "bold"), f" {number(summary.used)} of {number(summary.cores)} in use")
    title.append(f", {percent(summary.used, summary.cores)}" if summary.cores else "")
    if summary.gpus:
        title.append(f", GPUs {number(summary.gpus_used)} of {number(summary.gpus)}")
    history = summary.history
    busy = resample(history.busy, width - 6) if history is not None else []
    cores = resample(history.cores, width - 6) if history is not None else []
    values = [min(1.0, used / had) if had > 0 else 0.0 for used, had in zip(busy, cores, strict=True)]
    lines = graph(values, height, model.look)
    labels = ["100 %", *[""] * (height - 2), "0 %"]
    return [rule(title, width, model.look), *_labelled(lines, labels), _axis(model, history, width)]


def _throughput(model: Model, summary: RunSummary, width: int, height: int) -> list[Text]:
    history = summary.history
    ends = resample(history.ends, width - 6) if history is not None else []
    most = max(ends, default=0.0)
    seconds = history.width * len(history.ends) / len(ends) if history is not None and ends else 1.0
    title = Text.assemble(("Ends", "bold"), " of jobs and iterations, failures in red")
    lines = graph([value / most if most else 0.0 for value in ends], height, model.look, "green")
    if history is not None and most:
        for place, failures in enumerate(resample(history.failures, width - 6)):
            for line in lines[height - _rows(failures / most, height) :]:
                line.stylize(style_of("FAILED"), place, place + 1)
    labels = [_rate(most / seconds) if most else "", *[""] * (height - 2), "0"]
    return [rule(title, width, model.look), *_labelled(lines, labels), _axis(model, history, width)]


def _rows(share: float, height: int) -> int:
    """Lines of a column for a share of its height: at least one for a share above 0."""
    return max(1, round(share * height)) if share > 0 else 0


def _labelled(lines: list[Text], labels: list[str]) -> list[Text]:
    return [Text.assemble((f"{label:>5} ", "dim"), line) for label, line in zip(labels, lines, strict=False)]


def _axis(model: Model, history: History | None, width: int) -> Text:
    if history is None or not history.busy:
        return Text("      no history yet", style="dim")
    first = short_clock(history.first, model.now)
    last = short_clock(history.first + history.width * len(history.busy), model.now)
    return Text(f"      {first}{last:>{max(1, width - 6 - len(first))}}", style="dim")


def _nodes(summary: RunSummary, width: int, height: int, look: Look) -> list[Text]:
    count = len(summary.nodes) + summary.more_nodes
    lines = [rule(Text.assemble(("Nodes", "bold"), f" {number(count)}"), width, look)]
    rows = height - 1
    nodes = summary.nodes
    names = min(max([cell_len(shown(node.name, look)) for node in nodes], default=1), max(6, width // 3))
    extras = max([len(_extras(node)) for node in nodes if node.state == "ready"], default=0)
    if len(nodes) + bool(summary.more_nodes) <= rows:
        lines += [_node(node, names, extras, width, look) for node in nodes]
        if summary.more_nodes:
            lines.append(Text(f"and {number(summary.more_nodes)} more, all ready", style="dim"))
        return lines
    # A line for each node as far as they fit, those that are not ready first, and a character for each other node.
    listed = max(0, rows - 2 - _rows_of_strip(len(nodes) - rows + 2, width, rows))
    rest = nodes[listed:]
    lines += [_node(node, names, extras, width, look) for node in nodes[:listed]]
    strip = "".join([level(node.used / node.cores if node.cores else 0, look) for node in rest])
    if look.ascii:
        strip = strip.replace(" ", "_")
    room = max(1, height - len(lines) - 1)
    lines += [Text(strip[at : at + width], style="cyan") for at in range(0, min(len(strip), width * room), width)]
    drawn = min(len(strip), width * room)
    hidden = len(rest) - drawn + summary.more_nodes
    note = f"and {number(len(rest))} more nodes" if not hidden else f"a column a node, {number(hidden)} more"
    lines.append(Text(cut(note, width, look), style="dim"))
    return lines[:height]


def _rows_of_strip(nodes: int, width: int, rows: int) -> int:
    """Lines that a character for each node takes, at most half of those that there are."""
    return max(1, min(rows // 2, -(-nodes // width)))


def _extras(node: NodeSummary) -> str:
    gpus = f" gpu {number(node.gpus_used)}/{number(node.gpus)}" if node.gpus else ""
    return gpus + (" remote" if node.remote else "")


def _node(node: NodeSummary, names: int, extras: int, width: int, look: Look) -> Text:
    """A line about a node; its name takes `names` columns, and the text after its cores takes `extras`."""
    ready = node.state == "ready"
    line = padded(Text(cut(node.name, names, look), "" if ready else "red"), names)
    if not ready:
        text = f"{node.state}: {node.reason}" if node.reason else node.state
        return Text.assemble(line, " ", (cut(text, width - line.cell_len - 1, look), "red"))
    figures = f"{number(node.used)}/{number(node.cores)}".rjust(7)
    bar = max(3, width - line.cell_len - 1 - len(figures) - extras)
    return Text.assemble(line, " ", fill_bar(node.used, node.cores, bar, look), figures, (_extras(node), "dim"))


def header_state(summary: RunSummary | None, look: Look) -> Text:
    """Whether the run is live."""
    dot = "*" if look.ascii else "●"
    if summary is None:
        return Text(f"{'o' if look.ascii else '○'} connecting", style="dim")
    if summary.alive:
        return Text.assemble((f"{dot} live", "bold green"), f" on {shown(summary.host, look)}" if summary.host else "")
    word = "ended" if summary.ended is not None else "no manager"
    return Text(f"{'o' if look.ascii else '○'} {word}", style="" if summary.ended is not None else "yellow")
