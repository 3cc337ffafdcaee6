"""The colours of states are readable, and distinguishable with every kind of colour vision."""

from __future__ import annotations

import math
from itertools import combinations

import click
import pytest
from rich.cells import cell_len
from rich.style import Style

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.report.state_colours import (
    DARK_BACKGROUNDS,
    LIGHT_BACKGROUNDS,
    STATE_COLOURS,
    UNKNOWN,
    StateColour,
    colour_of,
)

Triple = tuple[float, float, float]
AA_TEXT = 4.5
JUST_DISTINGUISHABLE = 0.02
"""The distance of two colours in OKLab at which a difference becomes visible."""

VISION: dict[str, tuple[Triple, Triple, Triple]] = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""Matrices on linear RGB that show a colour as people with a colour blindness see it (Machado, Oliveira, Fernandes)."""


def _linear(colour: str) -> Triple:
    def channel(at: int) -> float:
        value = int(colour[at : at + 2], 16) / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    return channel(1), channel(3), channel(5)


def _apply(matrix: tuple[Triple, Triple, Triple], colour: Triple) -> Triple:
    red, green, blue = (sum(factor * part for factor, part in zip(row, colour, strict=True)) for row in matrix)
    return red, green, blue


def _contrast(one: str, other: str) -> float:
    darker, lighter = sorted(
        sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), _linear(colour), strict=True))
        for colour in (one, other)
    )
    return (lighter + 0.05) / (darker + 0.05)


def _oklab(colour: Triple) -> Triple:
    to_cones = (
        (0.4122214708, 0.5363325363, 0.0514459929),
        (0.2119034982, 0.6806995451, 0.1073969566),
        (0.0883024619, 0.2817188376, 0.6299787005),
    )
    to_lab = (
        (0.2104542553, 0.7936177850, -0.0040720468),
        (1.9779984951, -2.4285922050, 0.4505937099),
        (0.0259040371, 0.7827717662, -0.8086757660),
    )
    shown = tuple(min(1.0, max(0.0, part)) for part in colour)
    long, middle, short = (part ** (1 / 3) for part in _apply(to_cones, (shown[0], shown[1], shown[2])))
    return _apply(to_lab, (long, middle, short))


def test_every_state_has_a_colour_in_the_order_of_its_life():
    assert list(STATE_COLOURS) == [state.name for state in State]


@pytest.mark.parametrize("state", STATE_COLOURS)
def test_colours_of_states_are_readable_as_text(state: str):
    colour = STATE_COLOURS[state]
    assert min(_contrast(colour.light, background) for background in LIGHT_BACKGROUNDS) >= AA_TEXT
    assert min(_contrast(colour.dark, background) for background in DARK_BACKGROUNDS) >= AA_TEXT


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
def test_states_differ_clearly_for_people_with(vision: str, theme: str):
    seen = {
        state: _oklab(_apply(VISION[vision], _linear(getattr(colour, theme))))
        for state, colour in STATE_COLOURS.items()
    }
    distances = {(one, other): math.dist(seen[one], seen[other]) for one, other in combinations(seen, 2)}
    assert {pair: distance for pair, distance in distances.items() if distance < 3.5 * JUST_DISTINGUISHABLE} == {}


def test_two_similar_colours_are_found_to_be_similar():
    assert math.dist(_oklab(_linear("#107530")), _oklab(_linear("#127732"))) < JUST_DISTINGUISHABLE


@pytest.mark.parametrize("field", ["symbol", "letter"])
def test_states_differ_without_colour(field: str):
    shown = [getattr(colour, field) for colour in (*STATE_COLOURS.values(), UNKNOWN)]
    assert len(set(shown)) == len(shown)
    assert all(len(text) == cell_len(text) == 1 for text in shown)


def test_letters_are_ascii():
    assert all(colour.letter.isascii() for colour in STATE_COLOURS.values())


@pytest.mark.parametrize("colour", STATE_COLOURS.values())
def test_styles_are_known_to_rich_and_to_click(colour: StateColour):
    Style.parse(colour.style)
    assert click.style("x", fg=colour.style or None)


def test_an_unknown_state_is_shown_with_a_question_mark():
    assert colour_of("PAUSED").symbol == "?"
    assert colour_of("FAILED") == STATE_COLOURS["FAILED"]
