"""Tables and JSON output of commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

from qcg.pilotjob.cli.console import echo_lines, echo_styled
from qcg.pilotjob.common.styled_lines import table_lines
from qcg.pilotjob.report.state_colours import STATE_COLOURS

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def show_json(data: Any) -> None:
    echo_styled(json.dumps(data, indent=2))


def show_table(head: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Print a table. Columns in `right` are aligned to the right; rows with a state have its colour."""
    echo_lines(table_lines(head, rows, right, _colour_of_state))


def _colour_of_state(cells: Sequence[str]) -> str:
    return next((STATE_COLOURS[cell].style for cell in cells if cell in STATE_COLOURS), "")
