"""Draws a model: a header, the view, a line for questions and notices, and the keys."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from qcg.pilotjob.common.wording import list_names
from qcg.pilotjob.top.model import Model, Size
from qcg.pilotjob.top.text import clock, cut, padded, shown
from qcg.pilotjob.top.views.body import body_height
from qcg.pilotjob.top.views.help import help_view
from qcg.pilotjob.top.views.job import job_view
from qcg.pilotjob.top.views.jobs import jobs_view
from qcg.pilotjob.top.views.output import output_state, output_view
from qcg.pilotjob.top.views.overview import header_state, overview

MOST_NAMES = 3
KEYS = {
    "overview": (("2", "jobs"), ("up/down", "group"), ("Enter", "example"), ("/", "filter")),
    "jobs": (
        ("Enter", "details"),
        ("l", "output"),
        ("/", "filter"),
        ("s", "state"),
        ("o", "order"),
        ("c", "cancel"),
        ("r", "rerun"),
    ),
    "job": (("Esc", "back"), ("l", "output"), ("i", "iterations"), ("c", "cancel"), ("r", "rerun"), ("h", "hold")),
    "output": (("Esc", "back"), ("e", "other stream"), ("f", "follow"), ("arrows", "scroll")),
    "help": (("any key", "back"),),
}


def render(model: Model) -> Group:
    """The whole screen: one line for each row of the terminal, each with its full width."""
    size = model.size
    return Group(*screen(model, size))


def screen(model: Model, size: Size) -> list[Text]:
    width, height = size
    height_left = body_height(size)
    body = _body(model, width, height_left)[:height_left]
    body += [Text()] * (height_left - len(body))
    lines = [_header(model, width), *body, _message(model, width), _footer(model, width)][:height]
    return [_exact(line, width) for line in lines]


def _exact(line: Text, width: int) -> Text:
    line = padded(line, width)
    line.no_wrap = True
    line.end = ""
    return line


def _body(model: Model, width: int, height: int) -> list[Text]:
    if model.view == "overview":
        return overview(model, width, height)
    if model.view == "jobs":
        return jobs_view(model, width, height)
    if model.view == "job":
        return job_view(model, width, height)
    if model.view == "output":
        return output_view(model, width, height)
    return help_view(width, height)


def _header(model: Model, width: int) -> Text:
    summary, look = model.summary, model.look
    state = header_state(summary, look)
    if model.view == "output":
        state = Text.assemble(output_state(model), "  ", state)
    right = Text.assemble("  ", state, f"  {clock(model.now, model.now)} ")
    where = "" if summary is None else summary.directory
    left = Text.assemble((" qcg-pm top ", "bold reverse"), " ")
    width_left = width - left.cell_len - right.cell_len
    left.append(_end_of(shown(where, look), width_left))
    return Text.assemble(padded(left, max(0, width - right.cell_len)), right)


def _end_of(path: str, width: int) -> str:
    """The end of a path that does not fit, because it has the name of the run."""
    if len(path) <= width:
        return path
    return "..." + path[len(path) - width + 3 :] if width > 3 else ""


def _message(model: Model, width: int) -> Text:
    """A confirmation question, a notice, or the reason why the run cannot be read."""
    look = model.look
    if model.question is not None:
        names = model.question.names
        text = f" {model.question.action.capitalize()} {list_names(names, MOST_NAMES)}?"
        keys = "  y: yes, n: no "
        return padded(Text.assemble((cut(text, width - len(keys), look) + keys, "bold reverse yellow")), width)
    if model.notice is not None:
        return Text(cut(f" {model.notice.text}", width, look), style="bold red" if model.notice.bad else "bold")
    return Text(cut(f" {model.trouble}", width, look), style="yellow")


def _footer(model: Model, width: int) -> Text:
    *some, help_key, quit_key = (
        Text.assemble((key, "bold cyan"), f" {meaning}   ")
        for key, meaning in (*KEYS[model.view], ("?", "help"), ("q", "quit"))
    )
    line, end = Text(" "), Text.assemble(help_key, quit_key)
    for part in some:
        if line.cell_len + part.cell_len + end.cell_len <= width + 3:
            line = Text.assemble(line, part)
    return Text.assemble(line, end)
