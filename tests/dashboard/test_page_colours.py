"""The colours of the page are those of states everywhere, and texts can be read on their backgrounds."""

from __future__ import annotations

import re

import pytest

from qcg.pilotjob.dashboard.page_files import load_page
from qcg.pilotjob.report.state_colours import STATE_COLOURS

AA_TEXT = 4.5
AA_SHAPES = 3.0
"""The contrast of edges of fields and of marks that carry a meaning."""

PAIRS = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", load_page()["colours.css"].content.decode())
COLOURS = {theme: {name: pair[number] for name, *pair in PAIRS} for number, theme in enumerate(("light", "dark"))}
STATES = [state.lower() for state in STATE_COLOURS]
TEXTS = ["text", "muted", "accent", *STATES]
BACKGROUNDS = ["page", "panel", "hover"]


def luminance(colour: str) -> float:
    def linear(channel: int) -> float:
        value = channel / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def mixed(colour: str, part: float, ground: str) -> str:
    """`color-mix(in srgb, colour part%, ground)`."""
    channels = [
        round(part * int(colour[at : at + 2], 16) + (1 - part) * int(ground[at : at + 2], 16)) for at in (1, 3, 5)
    ]
    return "#" + "".join(f"{channel:02x}" for channel in channels)


def test_states_have_their_colours():
    for state, colour in STATE_COLOURS.items():
        assert (COLOURS["light"][state.lower()], COLOURS["dark"][state.lower()]) == (colour.light, colour.dark)


def test_states_have_the_symbols_of_the_terminal_view():
    text = load_page()["format.js"].content.decode()
    symbols = dict(re.findall(r'([A-Z]+): "(.)"', text.partition("SYMBOLS = {")[2].partition("}")[0]))
    assert symbols == {state: colour.symbol for state, colour in STATE_COLOURS.items()}


@pytest.mark.parametrize("theme", COLOURS)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("background", BACKGROUNDS)
def test_texts_can_be_read(theme: str, text: str, background: str):
    assert contrast(COLOURS[theme][text], COLOURS[theme][background]) >= AA_TEXT


@pytest.mark.parametrize("theme", COLOURS)
def test_text_on_the_accent_can_be_read(theme: str):
    assert contrast(COLOURS[theme]["on-accent"], COLOURS[theme]["accent"]) >= AA_TEXT


@pytest.mark.parametrize("theme", COLOURS)
@pytest.mark.parametrize("state", STATES)
def test_names_in_bars_of_the_timeline_can_be_read(theme: str, state: str):
    """They stand on the colour of the state mixed with that of the panel; the frame of the bar is stronger."""
    drawing = load_page()["timeline_drawing.js"].content.decode()
    ((fill, frame),) = re.findall(r'\["fill", (\d+)\], \["frame", (\d+)\]', drawing)
    colours = COLOURS[theme]
    panel = colours["panel"]
    assert contrast(colours["text"], mixed(colours[state], int(fill) / 100, panel)) >= AA_TEXT
    assert contrast(panel, mixed(colours[state], int(frame) / 100, panel)) >= AA_SHAPES


@pytest.mark.parametrize("theme", COLOURS)
@pytest.mark.parametrize("shape", ["edge", "accent", *STATES])
def test_shapes_differ_from_what_is_behind_them(theme: str, shape: str):
    assert contrast(COLOURS[theme][shape], COLOURS[theme]["panel"]) >= AA_SHAPES


def test_contrast_is_computed_as_the_guidelines_say():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_styles_name_no_colour_of_their_own():
    for name in ("style.css", "frame.css", "overview.css", "jobs.css"):
        assert re.findall(r"#[0-9a-fA-F]{3,8}\b|\brgba?\([\d ,]+\)", load_page()[name].content.decode()) == []
