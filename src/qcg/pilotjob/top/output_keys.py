"""The output of a job: reading it from its end on, following it, and scrolling."""

from __future__ import annotations

from msgspec.structs import replace

from qcg.pilotjob.top.model import (
    MOST_LINES,
    TAIL,
    Effect,
    FetchOutput,
    Model,
    OutputArrived,
    OutputView,
)
from qcg.pilotjob.top.views.body import body_height

LONGEST_LINE = 10_000
"""Characters of a line that are kept."""
CATCH_UP = 16 * TAIL
"""Unread bytes beyond which reading continues at the end of the file."""
SIDEWAYS = 20

Step = tuple[Model, tuple[Effect, ...]]


def open_output(model: Model, name: str) -> Step:
    model = replace(model, view="output", behind=(*model.behind, model.view), output=OutputView(name))
    return model, follow(model)


def follow(model: Model) -> tuple[Effect, ...]:
    """Read the output since the last read."""
    view = model.output
    if model.view != "output" or view is None or not view.follow:
        return ()
    return (FetchOutput(view.name, view.stream, view.next),)


def arrived(model: Model, event: OutputArrived) -> Step:
    view, output, wanted = model.output, event.output, event.wanted
    if view is None or (view.name, view.stream, view.next) != (wanted.name, wanted.stream, wanted.offset):
        return model, ()
    if output is None:
        return replace(model, output=OutputView(view.name, view.stream, missing=True, follow=view.follow)), ()
    restarted = view.path not in ("", output.path) or (view.next is not None and output.size < view.next)
    if restarted or (view.next is not None and output.size - output.next > CATCH_UP):
        model = replace(model, output=OutputView(view.name, view.stream, follow=view.follow))
        return model, (FetchOutput(view.name, view.stream, None),)
    text = output.text
    if view.next is None and output.size > TAIL:
        text = text.partition("\n")[2]  # it began inside of a line
    *lines, partial = (view.partial + text).split("\n")
    kept = (*view.lines, *map(_last_version, lines))[-MOST_LINES:]
    added = len(lines) if not view.follow and view.scroll else 0
    model = replace(
        model,
        output=replace(
            view,
            path=output.path,
            lines=kept,
            partial=_last_version(partial),
            next=output.next,
            missing=False,
            scroll=view.scroll + added,
        ),
    )
    return model, follow(model) if output.next < output.size and output.text else ()


def _last_version(line: str) -> str:
    """A line without text that was overwritten after a carriage return, as in progress bars."""
    return line.rstrip("\r").rpartition("\r")[2][:LONGEST_LINE]


def key(model: Model, name: str) -> Step:
    view = model.output
    assert view is not None
    page = body_height(model.size) - 1
    highest = max(0, len(view.all_lines) - page)
    moves = {"up": 1, "k": 1, "down": -1, "j": -1, "pageup": page, "pagedown": -page, " ": -page}
    if name == "e":
        other = OutputView(view.name, "stderr" if view.stream == "stdout" else "stdout")
        model = replace(model, output=other)
        return model, follow(model)
    if name == "f" or name in ("end", "G"):
        following = not view.follow if name == "f" else True
        model = replace(model, output=replace(view, follow=following, scroll=0 if following else view.scroll))
        return model, follow(model)
    if name in moves or name in ("home", "g"):
        place = highest if name in ("home", "g") else max(0, min(view.scroll + moves[name], highest))
        # At the end it follows again.
        return replace(model, output=replace(view, scroll=place, follow=place == 0)), ()
    if name in ("left", "right"):
        column = max(0, view.column + (SIDEWAYS if name == "right" else -SIDEWAYS))
        return replace(model, output=replace(view, column=column)), ()
    return model, ()
