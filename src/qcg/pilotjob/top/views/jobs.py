"""The list of jobs: one line each, with columns that depend on the width of the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rich.text import Text

from qcg.pilotjob.host.usage import bytes_text
from qcg.pilotjob.top.bars import state_bar
from qcg.pilotjob.top.list_keys import rows_on_screen
from qcg.pilotjob.top.model import Look, Model
from qcg.pilotjob.top.text import clock, cut, number, padded, shown, stopwatch, style_of, symbol
from qcg.pilotjob.watch.source import JobLine

ORDER_WORDS = {
    "attention": "running and failed first",
    "name": "by name",
    "state": "by state",
    "submitted": "by time of submission",
    "started": "by start",
    "ended": "by end",
    "duration": "by run time",
    "memory": "by memory",
}
CURSOR = "_"


class Column(NamedTuple):
    head: str
    width: int
    cell: Callable[[JobLine, Model], str]
    right: bool = False
    from_width: int = 0
    """The width of the screen from which on it is shown."""


def run_time(line: JobLine, model: Model) -> str:
    """Empty for a job that is not final and of which nothing runs."""
    if line.started is None:
        return ""
    if line.ended is not None:
        return stopwatch(line.ended - line.started)
    runs = line.state in ("EXECUTING", "SCHEDULED") and has_manager(model)
    return stopwatch(model.now - line.started) if runs else ""


def has_manager(model: Model) -> bool:
    """Whether running jobs are known to run: without a manager, nothing has been heard of them since."""
    return model.summary is None or model.summary.alive


COLUMNS = (
    Column("time", 8, run_time, right=True),
    Column("started", 12, lambda line, model: clock(line.started, model.now) if line.started else "", True, 150),
    Column("tries", 5, lambda line, model: str(line.attempts) if line.attempts > 1 else "", True, 100),
    Column("exit", 4, lambda line, model: "" if line.exit_code is None else str(line.exit_code), True, 90),
    Column(
        "cpu",
        5,
        lambda line, model: "" if line.cpu_efficiency is None else f"{line.cpu_efficiency:.0%}",
        True,
        110,
    ),
    Column("memory", 10, lambda line, model: bytes_text(line.max_memory) if line.max_memory else "", True, 120),
    Column("where", 18, lambda line, model: line.grant, False, 160),
)


def jobs_view(model: Model, width: int, height: int) -> list[Text]:
    columns = [column for column in COLUMNS if width >= column.from_width]
    fixed = 2 + 2 + 9 + 2 + sum(column.width + 2 for column in columns)
    name_width = max(12, min(48, (width - fixed) * 2 // 5))
    message_width = max(0, width - fixed - name_width - 1)
    lines = [_about(model, width), _head(columns, name_width, message_width)]
    jobs, page = model.jobs, rows_on_screen(model.size)
    if jobs.rows is None:
        return [*lines, Text("  Reading the jobs ...", style="dim")]
    if not jobs.rows.total:
        return [*lines, Text(f"  {_none(model)}", style="dim")]
    for place in range(jobs.first, min(jobs.first + page, jobs.rows.total)):
        line = jobs.rows.line(place)
        if line is None:
            row = Text("  ...", style="dim")
        else:
            row = _row(line, model, columns, name_width, message_width)
        if place == jobs.cursor:
            row = Text(padded(row, width).plain, style="reverse")
        lines.append(row)
    return lines[:height]


def _none(model: Model) -> str:
    jobs = model.jobs
    if jobs.search or jobs.typed or jobs.filter != "all":
        return "No job matches the filter. Escape shows all jobs."
    return "There are no jobs yet." if model.summary is None or model.summary.alive else "There are no jobs."


def _about(model: Model, width: int) -> Text:
    """The title of the list: its filter, its order, and the position of the screen in it."""
    jobs, look = model.jobs, model.look
    separator = " | " if look.ascii else " │ "
    line = Text(" ")
    line.append(f"iterations of {shown(jobs.job, look)}" if jobs.job else "jobs", "bold")
    line.append(separator, "dim").append("all states" if jobs.filter == "all" else jobs.filter)
    line.append(separator, "dim").append(ORDER_WORDS[jobs.order] + (", reversed" if jobs.descending else ""))
    if jobs.typed is not None:
        line.append(separator, "dim").append("filter: ", "bold").append(shown(jobs.typed, look)).append(CURSOR, "blink")
    elif jobs.search:
        line.append(separator, "dim").append("filter: ").append(shown(jobs.search, look), "bold")
    if model.marked:
        line.append(separator, "dim").append(f"{number(len(model.marked))} marked", "bold")
    place = ""
    if jobs.rows is not None and jobs.rows.total:
        place = f"{number(jobs.cursor + 1)} of {number(jobs.rows.total)} "
    return Text.assemble(padded(line, max(0, width - len(place))), (place, "dim"))


def _head(columns: list[Column], name_width: int, message_width: int) -> Text:
    head = f"    {'name':{name_width}}  {'state':9}"
    for column in columns:
        head += "  " + (f"{column.head:>{column.width}}" if column.right else f"{column.head:{column.width}}")
    return Text(head + ("  message" if message_width > 7 else ""), style="bold dim")


def _row(line: JobLine, model: Model, columns: list[Column], name_width: int, message_width: int) -> Text:
    look, style = model.look, style_of(line.state)
    row = Text.assemble(
        "*" if line.name in model.marked else " ",
        (symbol(line.state, look), style),
        "  ",
        padded(Text(cut(line.name, name_width, look)), name_width),
        "  ",
        (f"{cut(line.state, 9, look):9}", style),
    )
    for column in columns:
        cell = cut(column.cell(line, model), column.width, look)
        aligned = Text(cell.rjust(column.width)) if column.right else padded(Text(cell), column.width)
        row = Text.assemble(row, "  ", aligned)
    if message_width > 3:
        row = Text.assemble(row, "  ", _message(line, message_width - 2, look))
    return row


def _message(line: JobLine, width: int, look: Look) -> Text:
    """The message of a job, or how far its iterations are."""
    if not line.iterations:
        return Text(cut(line.message or line.grant, width, look), style="dim")
    total = sum(line.iterations.values())
    final = sum(count for state, count in line.iterations.items() if state not in ("QUEUED", "SCHEDULED", "EXECUTING"))
    figures = f" {number(final)}/{number(total)}"
    if width < len(figures) + 5:
        return Text(cut(figures.strip(), width, look), style="dim")
    return Text.assemble(state_bar(line.iterations, min(30, width - len(figures)), look), figures)
