"""The part of the screen that belongs to a view."""

from __future__ import annotations

from rich.text import Text

from qcg.pilotjob.top.model import Size
from qcg.pilotjob.top.text import padded

HEADER = 1
FOOTER = 2
"""The line of notices and the line of keys."""


def body_height(size: Size) -> int:
    return max(1, size.height - HEADER - FOOTER)


def beside(left: list[Text], right: list[Text], width: int, gap: int, height: int) -> list[Text]:
    """Two columns of lines; the left one is `width` wide."""
    blank = Text()
    return [
        Text.assemble(
            padded(left[place] if place < len(left) else blank, width),
            " " * gap,
            right[place] if place < len(right) else blank,
        )
        for place in range(height)
    ]
