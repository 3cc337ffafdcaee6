"""Lines of text for the screen: escaped, cut to their width, and in ASCII on terminals without UTF-8."""

from __future__ import annotations

import re
import time

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.report.state_colours import colour_of
from qcg.pilotjob.top.model import Look

_COLOUR_CODES = re.compile(r"\x1b\[[0-9;:]{0,60}m")

WORDS = {
    "QUEUED": "waiting",
    "SCHEDULED": "starting",
    "EXECUTING": "running",
    "SUCCEED": "succeeded",
    "FAILED": "failed",
    "CANCELED": "cancelled",
    "OMITTED": "omitted",
}
"""Names of states for people."""
_TO_ASCII = str.maketrans({"…": "~", "·": "-", "–": "-", "’": "'", "×": "x"})


def shown(text: str, look: Look) -> str:
    """Any text as one line with control characters escaped."""
    text = printable(text)
    if look.ascii and not text.isascii():
        return text.translate(_TO_ASCII).encode("ascii", "backslashreplace").decode()
    return text


def shown_output(line: str, look: Look) -> str:
    """A line of a program's output: tabs are spaces, colour codes are left out."""
    return shown(_COLOUR_CODES.sub("", line).expandtabs(8), look)


def cut(text: str, width: int, look: Look) -> str:
    """Escaped text of at most `width` columns; an ellipsis replaces the rest."""
    text = shown(text, look)
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + ("~" if look.ascii else "…") if width > 0 else ""


def wrapped(text: str, width: int, look: Look) -> list[str]:
    """Escaped text in lines of at most `width` columns, broken at spaces where possible."""
    lines: list[str] = []
    line = ""
    for word in shown(text, look).split(" "):
        if line and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
        if cell_len(line) > width:
            *full, line = chop_cells(line, max(1, width))
            lines += full
    return [*lines, line]


def padded(line: Text, width: int) -> Text:
    """A line with exactly `width` columns."""
    line = line.copy()
    line.truncate(width, overflow="crop", pad=True)
    return line


def symbol(state: str, look: Look) -> str:
    colour = colour_of(state)
    return colour.letter if look.ascii else colour.symbol


def style_of(state: str) -> str:
    """The style of a state; waiting states are faint."""
    return colour_of(state).style or ("dim" if state == "QUEUED" else "")


def rule(title: Text, width: int, look: Look) -> Text:
    """A title followed by a line to the edge."""
    line = Text.assemble(title, " ")
    left = width - line.cell_len
    return padded(Text.assemble(line, (("-" if look.ascii else "─") * max(0, left), "dim")), width)


def number(count: float) -> str:
    """`12,345`; fractions of GPUs with one digit."""
    return f"{count:,.0f}" if count == int(count) else f"{count:,.1f}"


def percent(part: float, whole: float) -> str:
    """A share as a percentage. Only the whole is shown as 100 %, and only nothing as 0 %."""
    if whole <= 0 or part <= 0:
        return "0 %"
    if part >= whole:
        return "100 %"
    return f"{min(99, max(1, round(100 * part / whole)))} %"


def span(seconds: float) -> str:
    """A length of time in words: `42 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    seconds = max(0.0, seconds)
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def stopwatch(seconds: float) -> str:
    """A length of time in a column of at most 8 characters: `0.42 s`, `42 s`, `12:05`, `1:02:03`, `4d 06h`."""
    seconds = max(0.0, seconds)
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, second = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes}:{second:02d}"
    if hours < 100:
        return f"{hours}:{minutes:02d}:{second:02d}"
    return f"{hours // 24}d {hours % 24:02d}h"


def clock(at: float, now: float) -> str:
    """A time of the day, with the date if it is not today."""
    then = time.localtime(at)
    same_day = then[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M:%S" if same_day else "%b %d %H:%M", then)


def short_clock(at: float, now: float) -> str:
    """A time of the day without seconds, with the date if it is not today."""
    then = time.localtime(at)
    return time.strftime("%H:%M" if then[:3] == time.localtime(now)[:3] else "%b %d %H:%M", then)
