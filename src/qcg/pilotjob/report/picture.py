"""Pictures as plain data: rectangles, texts and areas with named colours, which writers turn into SVG or PNG."""

from __future__ import annotations

from typing import NamedTuple, Union

from qcg.pilotjob.report.state_colours import DARK_BACKGROUNDS, LIGHT_BACKGROUNDS, STATE_COLOURS

SHADES = 8
"""Shades of a busy bin, from a little to all of the time."""


class Colour(NamedTuple):
    light: str
    dark: str


class Rect(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    colour: str
    radius: float = 0.0
    title: str = ""
    """Shown when the mouse is on it, where the format allows it."""


class Cells(NamedTuple):
    """Rectangles of one colour in a row, as their left and right edges."""

    y: float
    height: float
    colour: str
    edges: tuple[tuple[float, float], ...]


class Text(NamedTuple):
    x: float
    y: float
    """The base line."""
    text: str
    size: float
    colour: str
    anchor: str = "start"
    """`start`, `middle` or `end`: which part of the text is at `x`."""
    bold: bool = False


class Area(NamedTuple):
    """An area between a curve and a base line."""

    points: tuple[tuple[float, float], ...]
    base: float
    colour: str


Shape = Union[Rect, Cells, Text, Area]


class Picture(NamedTuple):
    width: float
    height: float
    title: str
    """Alternative text for screen readers."""
    shapes: tuple[Shape, ...]


def text_width(text: str, size: float) -> float:
    """Approximate width of a text in common fonts."""
    return len(text) * size * 0.56


def shortened(text: str, size: float, width: float) -> str:
    """The text, or its begin with an ellipsis when it is wider."""
    if text_width(text, size) <= width:
        return text
    letters = int(width / (size * 0.56)) - 1
    return f"{text[:letters]}…" if letters > 0 else ""


def mixed(colour: str, ground: str, part: float) -> str:
    """A colour on a ground, both as `#rrggbb`."""
    pairs = [(int(colour[at : at + 2], 16), int(ground[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a * part + b * (1 - part)):02x}" for a, b in pairs)


def _palette() -> dict[str, Colour]:
    page = Colour(LIGHT_BACKGROUNDS[0], DARK_BACKGROUNDS[0])
    text = Colour("#1b1f24", "#e6edf3")
    colours = {
        "page": page,
        "text": text,
        "muted": Colour("#5b626c", "#9aa4af"),
        "line": Colour(*(mixed(a, b, 0.12) for a, b in zip(text, page, strict=True))),
        "band": Colour(*(mixed(a, b, 0.035) for a, b in zip(text, page, strict=True))),
    }
    busy = Colour(STATE_COLOURS["EXECUTING"].light, STATE_COLOURS["EXECUTING"].dark)
    colours["curve"] = Colour(*(mixed(a, b, 0.35) for a, b in zip(busy, page, strict=True)))
    for shade in range(SHADES + 1):
        part = 0.12 + 0.66 * shade / SHADES
        colours[f"busy{shade}"] = Colour(*(mixed(a, b, part) for a, b in zip(busy, page, strict=True)))
    for name, state in STATE_COLOURS.items():
        colours[name] = Colour(state.light, state.dark)
    return colours


PALETTE = _palette()
