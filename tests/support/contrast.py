"""The contrast of two colours, as the guidelines for accessible pages (WCAG) define it."""

from __future__ import annotations

AA_TEXT = 4.5
AA_SHAPES = 3.0
"""The contrast of edges of fields and of marks that carry a meaning."""


def luminance(colour: str) -> float:
    def linear(channel: int) -> float:
        value = channel / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)
