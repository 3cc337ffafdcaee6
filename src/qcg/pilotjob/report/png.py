"""Writes pictures as PNG, with Pillow, which is an extra."""

from __future__ import annotations

from functools import lru_cache
from typing import IO, Any

from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.picture import PALETTE, Area, Cells, Picture, Rect, Shape, Text

SCALE = 2
"""Pixels for each unit of a picture: sharp on screens with small pixels, and in print."""
FONTS = ("DejaVuSans", "LiberationSans-Regular", "Arial")
BOLD_FONTS = ("DejaVuSans-Bold", "LiberationSans-Bold", "Arial Bold")
"""Common fonts with many scripts. Pillow has one of its own for latin letters."""
SMALLER = 0.93
"""These fonts are wider than those of browsers."""
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
NO_PILLOW = "PNG files need the package Pillow: write an SVG file, or install it with pip install 'qcg-pilotjob[plots]'"


def check_png() -> None:
    """Raise ReportError unless PNG files can be written."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise ReportError(f"{NO_PILLOW}.") from None


def write_png(picture: Picture, file: IO[bytes]) -> None:
    """Write the picture in its light colours. Raises ReportError without Pillow."""
    check_png()
    from PIL import Image, ImageDraw, PngImagePlugin

    size = round(picture.width * SCALE), round(picture.height * SCALE)
    image = Image.new("RGB", size, PALETTE["page"].light)
    draw = ImageDraw.Draw(image)
    for shape in picture.shapes:
        _paint(draw, shape)
    text = PngImagePlugin.PngInfo()
    text.add_itxt("Title", picture.title)
    image.save(file, format="PNG", pnginfo=text)


def _paint(draw: Any, shape: Shape) -> None:
    colour = PALETTE[shape.colour].light
    if isinstance(shape, Text):
        place = shape.x * SCALE, shape.y * SCALE
        draw.text(place, shape.text, fill=colour, font=_font(shape.size, shape.bold), anchor=ANCHORS[shape.anchor])
    elif isinstance(shape, Area):
        points = [(shape.points[0][0], shape.base), *shape.points, (shape.points[-1][0], shape.base)]
        draw.polygon([(x * SCALE, y * SCALE) for x, y in points], fill=colour)
    elif isinstance(shape, Cells):
        for left, right in shape.edges:
            draw.rectangle(_box(left, shape.y, right, shape.y + shape.height), fill=colour)
    elif isinstance(shape, Rect):
        box = _box(shape.x, shape.y, shape.x + shape.width, shape.y + shape.height)
        if shape.radius >= 1:
            draw.rounded_rectangle(box, shape.radius * SCALE, fill=colour)
        else:
            draw.rectangle(box, fill=colour)


def _box(left: float, top: float, right: float, bottom: float) -> tuple[int, int, int, int]:
    """The box in pixels. Pillow includes the last row and column."""
    x, y = round(left * SCALE), round(top * SCALE)
    return x, y, max(round(right * SCALE) - 1, x), max(round(bottom * SCALE) - 1, y)


@lru_cache(maxsize=32)
def _font(size: float, bold: bool) -> Any:
    from PIL import ImageFont

    for name in BOLD_FONTS if bold else FONTS:
        try:
            return ImageFont.truetype(f"{name}.ttf", round(size * SCALE * SMALLER))
        except OSError:
            continue
    return ImageFont.load_default(size * SCALE)
