"""Bars and graphs of block characters, or of ASCII characters on terminals without UTF-8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from qcg.pilotjob.top.model import Look
from qcg.pilotjob.top.text import style_of, symbol

BAR_ORDER = ("SUCCEED", "FAILED", "CANCELED", "OMITTED", "EXECUTING", "SCHEDULED", "QUEUED")
"""States from final to waiting ones."""
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_ASCII_LEVELS = " .:#"


def shares(counts: Sequence[float], width: int) -> list[int]:
    """Columns of a bar for each count: `width` in total, and at least one for each count above 0 if possible."""
    total = sum(counts)
    if total <= 0 or width <= 0:
        return [0] * len(counts)
    exact = [count * width / total for count in counts]
    columns = [max(1, int(part)) if part > 0 else 0 for part in exact]
    while sum(columns) > width:
        # Take columns from the longest part, so that the shortest parts keep their only column.
        columns[max(range(len(columns)), key=lambda place: (columns[place] > 1, columns[place]))] -= 1
    while sum(columns) < width:
        neediest = max(range(len(columns)), key=lambda place: exact[place] - columns[place])
        columns[neediest] += 1
    return columns


def state_bar(counts: Mapping[str, int], width: int, look: Look) -> Text:
    """A bar with a part for each state: in its colour, or made of its symbols."""
    states = [state for state in BAR_ORDER if counts.get(state)]
    bar = Text()
    for state, columns in zip(states, shares([counts[state] for state in states], width), strict=True):
        if look.colour and not look.ascii:
            bar.append("█" * columns, "bright_black" if state == "QUEUED" else style_of(state))
        else:
            bar.append(symbol(state, look) * columns, style_of(state))
    if not states:
        bar.append(symbol("QUEUED", look) * max(0, width), "dim")
    return bar


def fill_bar(part: float, whole: float, width: int, look: Look, style: str = "cyan") -> Text:
    """A bar that is filled as far as a share, at least one column for a share above 0."""
    filled = 0 if whole <= 0 else min(width, round(width * part / whole))
    if part > 0 and whole > 0:
        filled = max(1, filled)
    full, empty = ("#", ".") if look.ascii else ("━", "─")
    return Text.assemble((full * filled, style), (empty * (width - filled), "dim"))


def level(fraction: float, look: Look) -> str:
    """One character that is as high as a fraction; a fraction above 0 is visible."""
    levels = _ASCII_LEVELS if look.ascii else _EIGHTHS
    place = round(fraction * (len(levels) - 1))
    return levels[min(len(levels) - 1, max(place, 1 if fraction > 0 else 0))]


def graph(values: Sequence[float], height: int, look: Look, style: str = "cyan") -> list[Text]:
    """Columns of values between 0 and 1, from the top line to the bottom line."""
    lines = []
    for line in range(height - 1, -1, -1):
        cells = [min(1.0, max(0.0, value * height - line)) for value in values]
        # Only the bottom line shows that a small value is not 0.
        lines.append(Text("".join([level(cell if line == 0 or cell > 0.06 else 0, look) for cell in cells]), style))
    return lines


def resample(parts: Sequence[float], width: int) -> list[float]:
    """Sums of bins, spread over `width` columns of equal length."""
    if not parts or width <= 0:
        return []
    columns = [0.0] * width
    scale = width / len(parts)
    for place, part in enumerate(parts):
        first, last = place * scale, (place + 1) * scale
        at = first
        while at < last - 1e-9:
            column = min(width - 1, int(at + 1e-9))
            end = min(last, column + 1) if column < width - 1 else last
            columns[column] += part * (end - at) / scale
            at = end
    return columns
