"""Horizontal bars as an SVG, without a library, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.finding import Series

WIDTH, LEFT, RIGHT = 860, 300, 110
ROW, GAP, HEAD = 24, 6, 44
OURS, OTHERS = "#2f6fb0", "#a9b4be"


def draw(series: Sequence[Series]) -> str:
    parts: list[str] = []
    top = 10
    for one in series:
        parts += _bars(one, top)
        top += HEAD + len(one.values) * (ROW + GAP) + 20
    style = "text{font:14px sans-serif;fill:#333}.title{font-weight:bold}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}">\n'
        f'<style>{style}</style>\n<rect width="{WIDTH}" height="{top}" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _bars(series: Series, top: int) -> list[str]:
    longest = max(series.values.values(), default=1.0) or 1.0
    parts = [_text(10, top + 20, f"{series.title}, {series.unit}", kind="title")]
    for place, (name, value) in enumerate(series.values.items()):
        y = top + HEAD + place * (ROW + GAP)
        width = max(value / longest * (WIDTH - LEFT - RIGHT), 1)
        colour = OURS if name in series.ours else OTHERS
        parts.append(_text(LEFT - 10, y + 17, name, anchor="end"))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{ROW}" fill="{colour}"/>')
        parts.append(_text(LEFT + width + 8, y + 17, f"{value:,.0f}"))
    return parts


def _text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}"{named}>{escape(text)}</text>'
