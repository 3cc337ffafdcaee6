"""Tables for people, JSON for programs.

Tables are made by hand: a hundred thousand jobs are listed in a second, and no command waits for a library to load.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

from qcg.pilotjob.cli.console import on_terminal, say_styled
from qcg.pilotjob.common.printable import printable

COLOURS = {"SUCCEED": "green", "FAILED": "red", "CANCELED": "yellow", "OMITTED": "yellow", "EXECUTING": "cyan"}


json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")


def show_json(data: Any) -> None:
    say_styled(json.dumps(data, indent=2))


def show_table(head: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Columns in `right` are numbers; the last one takes the room that is left."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    aligned = [
        [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, width, cell in zip(head, widths, row, strict=True)
        ]
        for row in [list(head), *cells]
    ]
    lines = ["  ".join(row).rstrip() for row in aligned]
    if on_terminal():
        lines[0] = click.style(lines[0], bold=True)
        lines[1:] = [_coloured(line, row) for line, row in zip(lines[1:], cells, strict=True)]
    say_styled("\n".join(lines))


def _coloured(line: str, row: list[str]) -> str:
    colour = next((COLOURS[cell] for cell in row if cell in COLOURS), None)
    return click.style(line, fg=colour) if colour else line
