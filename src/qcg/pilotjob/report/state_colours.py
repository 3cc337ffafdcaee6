"""Colours and symbols of job states, the same in tables, in the terminal view and on pages.

The colours have a contrast of at least 4.5 to the backgrounds of pages, so that they serve for text, and people with
any kind of colour blindness can tell them apart. Displays without colour show the symbol, or the letter where the
encoding has no symbols.
"""

from __future__ import annotations

from typing import NamedTuple


class StateColour(NamedTuple):
    """How a state is shown."""

    style: str
    """A colour of the terminal's own palette, as rich and click name it; empty for the terminal's text colour."""
    light: str
    """CSS colour on a light background."""
    dark: str
    """CSS colour on a dark background."""
    symbol: str
    """One character, one column wide."""
    letter: str
    """One ASCII character."""


LIGHT_BACKGROUNDS = ("#ffffff", "#f4f6f8")
"""Light backgrounds on which `StateColour.light` is readable: of the page, and of panels on it."""
DARK_BACKGROUNDS = ("#0d1117", "#1c2128")
"""Dark backgrounds on which `StateColour.dark` is readable."""

STATE_COLOURS = {
    "QUEUED": StateColour("", "#656a74", "#aab0b8", "·", "."),
    "SCHEDULED": StateColour("bright_blue", "#4a2391", "#d9cffc", "◦", "o"),
    "EXECUTING": StateColour("cyan", "#2463e0", "#429fff", "▸", ">"),
    "SUCCEED": StateColour("green", "#107530", "#4be58c", "✓", "+"),
    "FAILED": StateColour("red", "#d61230", "#f4535a", "✗", "x"),
    "CANCELED": StateColour("yellow", "#6b3a00", "#e8a623", "⊘", "/"),
    "OMITTED": StateColour("magenta", "#431a2f", "#ba6eac", "–", "-"),
}
"""The states by name, in the order of their life cycle."""

UNKNOWN = StateColour("", "#656a74", "#aab0b8", "?", "?")


def colour_of(state: str) -> StateColour:
    """How to show a state. A state unknown to this version looks like a waiting state with a question mark."""
    return STATE_COLOURS.get(state, UNKNOWN)
