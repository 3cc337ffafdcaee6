"""Output of a job: its last lines, or an earlier part of them."""

from __future__ import annotations

from rich.text import Text

from qcg.pilotjob.top.model import Model
from qcg.pilotjob.top.text import cut, number, rule, shown_output


def output_view(model: Model, width: int, height: int) -> list[Text]:
    view, look = model.output, model.look
    if view is None:
        return []
    title = Text.assemble((view.stream, "bold"), " of ", (cut(view.name, width // 3, look), "bold"))
    if view.path:
        title = Text.assemble(title, "  ", (cut(view.path, max(8, width - title.cell_len - 6), look), "dim"))
    lines = [rule(title, width, look)]
    page = height - 1
    if view.missing:
        return [*lines, Text(cut(f"  There is no {view.stream} of {view.name}.", width, look), style="dim")]
    if view.next is None:
        return [*lines, Text("  Reading ...", style="dim")]
    content = view.all_lines
    if not content:
        return [*lines, Text("  Nothing was written yet.", style="dim")]
    last = len(content) - min(view.scroll, max(0, len(content) - page))
    first = max(0, last - page)
    for line in content[first:last]:
        text = shown_output(line, look)[view.column :]
        lines.append(Text(cut(text, width, look)))
    return lines


def output_state(model: Model) -> Text:
    """Whether the view follows the output, or where it stands."""
    view = model.output
    if view is None or view.missing or view.next is None:
        return Text()
    if view.follow:
        return Text("following", style="bold green")
    total = len(view.all_lines)
    return Text(f"line {number(max(0, total - view.scroll))} of the last {number(total)}", style="yellow")
