"""Writes pictures as SVG, without a library. The colours follow the light or dark scheme of the viewer."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from qcg.pilotjob.report.picture import PALETTE, Area, Cells, Picture, Rect, Shape, Text

FONTS = "Inter, system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


def svg_of(picture: Picture) -> str:
    size = f"{_number(picture.width)} {_number(picture.height)}"
    width, height = size.split()
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{width}" height="{height}" role="img">',
        f"<title>{escape(picture.title)}</title>",
        f"<style>{_style()}</style>",
        f'<rect width="{width}" height="{height}" class="page"/>',
        *(line for shape in picture.shapes for line in _shape(shape)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _style() -> str:
    light = " ".join(f"--{name}: {colour.light};" for name, colour in PALETTE.items())
    dark = " ".join(f"--{name}: {colour.dark};" for name, colour in PALETTE.items())
    classes = " ".join(f".{name} {{ fill: var(--{name}); }}" for name in PALETTE)
    return (
        f"svg {{ {light} color-scheme: light dark; font-family: {FONTS}; }}"
        f" @media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}"
        f" {classes} .end {{ text-anchor: end; }} .middle {{ text-anchor: middle; }} .bold {{ font-weight: 600; }}"
    )


def _shape(shape: Shape) -> Iterator[str]:
    if isinstance(shape, Rect):
        place = f'x="{_number(shape.x)}" y="{_number(shape.y)}" width="{_number(shape.width)}"'
        radius = f' rx="{_number(shape.radius)}"' if shape.radius else ""
        head = f'<rect class="{shape.colour}" {place} height="{_number(shape.height)}"{radius}'
        yield f"{head}><title>{escape(shape.title)}</title></rect>" if shape.title else f"{head}/>"
    elif isinstance(shape, Cells):
        tall = _number(shape.height)
        parts = [f"M{_number(a)} {_number(shape.y)}h{_number(b - a)}v{tall}h{_number(a - b)}z" for a, b in shape.edges]
        yield f'<path class="{shape.colour}" d="{"".join(parts)}"/>'
    elif isinstance(shape, Area):
        first, last = shape.points[0][0], shape.points[-1][0]
        curve = "".join(f"L{_number(x)} {_number(y)}" for x, y in shape.points)
        base = _number(shape.base)
        yield f'<path class="{shape.colour}" d="M{_number(first)} {base}{curve}L{_number(last)} {base}z"/>'
    else:
        yield _text(shape)


def _text(shape: Text) -> str:
    classes = [shape.colour, *([shape.anchor] if shape.anchor != "start" else []), *(["bold"] if shape.bold else [])]
    place = f'x="{_number(shape.x)}" y="{_number(shape.y)}" font-size="{_number(shape.size)}"'
    return f'<text class="{" ".join(classes)}" {place}>{escape(shape.text)}</text>'


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
