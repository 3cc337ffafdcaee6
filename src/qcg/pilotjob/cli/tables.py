"""Tables and JSON output of commands.

Tables are formatted without a library: a hundred thousand jobs are listed in a second, and commands start fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

from qcg.pilotjob.cli.console import echo_styled, on_terminal
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.report.state_colours import STATE_COLOURS

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def show_json(data: Any) -> None:
    echo_styled(json.dumps(data, indent=2))


def show_table(head: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Print a table. Columns in `right` are aligned to the right."""
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
    echo_styled("\n".join(lines))


def _coloured(line: str, row: list[str]) -> str:
    colour = next((STATE_COLOURS[cell].style for cell in row if cell in STATE_COLOURS), None)
    return click.style(line, fg=colour) if colour else line
