"""Groups of failed and of waiting jobs, each with its reason, an example, and the last lines of its output."""

from __future__ import annotations

from rich.text import Text

from qcg.pilotjob.report.run_summary import Group, RunSummary
from qcg.pilotjob.top.model import Look, Model
from qcg.pilotjob.top.text import cut, number, rule, shown_output, style_of, wrapped

MOST_LAST_LINES = 8


def groups(summary: RunSummary | None) -> list[tuple[str, Group]]:
    """The groups with the state of their jobs, in the order of the screen."""
    if summary is None:
        return []
    return [*(("FAILED", group) for group in summary.failed), *(("QUEUED", group) for group in summary.waiting)]


def group_lines(model: Model, summary: RunSummary, width: int, height: int) -> list[Text]:
    look = model.look
    found = groups(summary)
    failed = sum(group.count for group in summary.failed)
    waiting = sum(group.count for group in summary.waiting)
    if not found:
        return [rule(Text("Waiting and failed", style="bold"), width, look), Text("none", style="dim")]
    listed = _lists(found, model.group, width, look, expand_all=True)
    if height_of_all(model, width) > height:
        # Of the selected group, as many last lines as leave a line for each group.
        most = max(1, height - len(found) - 2 * bool(summary.failed) - 2 * bool(summary.waiting) - 1)
        listed = _lists(found, model.group, width, look, expand_all=False, most=most)
    lines: list[Text] = []
    focus = 0
    before = ""
    for place, (state, _group) in enumerate(found):
        if state != before:
            if before:
                lines.append(Text())
            word, total = ("Failed", failed) if state == "FAILED" else ("Waiting", waiting)
            style = "bold red" if state == "FAILED" else "bold"
            lines.append(rule(Text.assemble((word, style), f" {number(total)}"), width, look))
            before = state
        if place == model.group:
            focus = len(lines)
        lines += listed[place]
    last = focus + len(listed[model.group])
    first = max(0, min(focus - 1, max(0, last - height))) if last > height else 0
    return lines[first : first + height]


def height_of_all(model: Model, width: int) -> int:
    """Lines that all groups take with all their details."""
    found = groups(model.summary)
    titles = len({state for state, _ in found})
    lists = _lists(found, model.group, width, model.look, expand_all=True)
    return 2 * titles - 1 + sum(map(len, lists)) if found else 2


def _lists(
    found: list[tuple[str, Group]],
    selected: int,
    width: int,
    look: Look,
    *,
    expand_all: bool,
    most: int = MOST_LAST_LINES,
) -> list[list[Text]]:
    """The lines of each group: all of them, or one line for each that is not selected."""
    digits = max([len(number(group.count)) for _, group in found], default=1)
    lists = []
    for place, (state, group) in enumerate(found):
        chosen = place == selected
        mark = (">" if look.ascii else "›") if chosen else " "
        head = f"{mark} {number(group.count):>{digits}} "
        indent = " " * (digits + 3)
        room = max(1, width - len(indent))
        if not chosen and not expand_all:
            lists.append([Text.assemble((head, style_of(state)), cut(group.sentence, room, look))])
            continue
        first, *more = wrapped(group.sentence, room, look)
        lines = [Text.assemble((head, f"bold {style_of(state)}" if chosen else style_of(state)), first)]
        lines += [Text(indent + line) for line in more[: 2 if most > 2 else 0]]
        lines.append(Text.assemble(indent, ("for example ", "dim"), cut(group.example, room - 12, look)))
        for line in group.last_lines[-min(most, MOST_LAST_LINES) :]:
            lines.append(Text(indent + ("| " if look.ascii else "│ ") + _cut_output(line, room - 2, look), style="dim"))
        lists.append(lines)
    return lists


def _cut_output(line: str, width: int, look: Look) -> str:
    return cut(shown_output(line, look), width, look)
