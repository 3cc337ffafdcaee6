"""Lines of text with a style each, and tables made of them.

Tables are formatted without a library: a hundred thousand jobs are listed in a second, and commands start and end fast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from qcg.pilotjob.common.printable import printable

BOLD = "bold"


class Line(NamedTuple):
    text: str
    """Control characters are escaped, except for line breaks."""
    style: str = ""
    """A colour by the name that click gives it, `BOLD`, or empty."""


def plain_text(lines: Iterable[Line]) -> str:
    return "".join(f"{line.text}\n" for line in lines)


def table_lines(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    right: Collection[str] = (),
    style_of: Callable[[Sequence[str]], str] = lambda cells: "",
) -> list[Line]:
    """A table. Columns in `right` are aligned to the right. `style_of`: the style of a row with these cells."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]

    def aligned(row: Sequence[str]) -> str:
        columns = zip(head, widths, row, strict=True)
        return "  ".join(
            [cell.rjust(width) if name in right else cell.ljust(width) for name, width, cell in columns]
        ).rstrip()

    return [Line(aligned(head), BOLD), *(Line(aligned(row), style_of(row)) for row in cells)]
