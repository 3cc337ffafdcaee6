"""The keys."""

from __future__ import annotations

from rich.text import Text

from qcg.pilotjob.top.views.body import beside

SECTIONS = (
    (
        "Everywhere",
        (
            ("1 2 Tab", "overview, jobs"),
            ("Esc", "back"),
            ("?", "this help"),
            ("Ctrl-L", "draw again"),
            ("Ctrl-Z", "to the shell; fg returns"),
            ("q Ctrl-C", "quit: the run continues"),
        ),
    ),
    (
        "Overview",
        (
            ("up down", "select a group"),
            ("Enter", "its example"),
            ("l", "output of its example"),
        ),
    ),
    (
        "Jobs",
        (
            ("arrows", "move; also PgUp, Home"),
            ("Enter", "details of the job"),
            ("l", "output of the job"),
            ("i", "iterations of the job"),
            ("/", "filter names: sim, *_7"),
            ("s S", "filter by state"),
            ("o O", "order"),
            ("v", "reverse the order"),
            ("Space", "mark for an action"),
        ),
    ),
    (
        "Actions, with confirmation",
        (
            ("c", "cancel"),
            ("r", "rerun"),
            ("h u", "hold, release"),
        ),
    ),
    (
        "Output",
        (
            ("e", "stdout, stderr"),
            ("f", "follow, or stop following"),
            ("arrows", "scroll; also PgUp, Home"),
            ("End", "to the end, and follow"),
        ),
    ),
)
KEY_WIDTH = 10


def help_view(width: int, height: int) -> list[Text]:
    blocks = [_block(title, keys) for title, keys in SECTIONS]
    one = [line for block in blocks for line in block]
    if len(one) <= height or width < 76:
        return one[:height]
    half = width // 2
    left = [line for block in (blocks[0], blocks[1], blocks[3]) for line in block]
    right = [line for block in (blocks[2], blocks[4]) for line in block]
    return beside(left, right, half, 0, min(height, max(len(left), len(right))))


def _block(title: str, keys: tuple[tuple[str, str], ...]) -> list[Text]:
    lines = [Text(f" {title}", style="bold")]
    lines += [Text.assemble("   ", (f"{key:{KEY_WIDTH}}", "cyan"), meaning) for key, meaning in keys]
    return [*lines, Text()]
