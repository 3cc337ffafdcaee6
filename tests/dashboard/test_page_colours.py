"""The colours of the page are those of states everywhere, and texts can be read on their backgrounds."""

from __future__ import annotations

import re

import pytest

from qcg.pilotjob.dashboard.page_files import load_page
from qcg.pilotjob.report.state_colours import STATE_COLOURS
from tests.support.contrast import AA_SHAPES, AA_TEXT, contrast

PAIRS = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", load_page()["colours.css"].content.decode())
COLOURS = {theme: {name: pair[number] for name, *pair in PAIRS} for number, theme in enumerate(("light", "dark"))}
STATES = [state.lower() for state in STATE_COLOURS]
TEXTS = ["text", "muted", "accent", *STATES]
BACKGROUNDS = ["page", "panel", "hover"]


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


def rule(file: str, selector: str) -> str:
    """The declarations of a rule."""
    (found,) = re.findall(rf"^{re.escape(selector)} {{\n(.*?)^}}", load_page()[file].content.decode(), re.DOTALL | re.M)
    return str(found)


@pytest.mark.parametrize("theme", COLOURS)
@pytest.mark.parametrize("ground", ["panel", "track"])
def test_what_waits_has_an_edge_in_the_bar_of_states(theme: str, ground: str):
    (edge,) = re.findall(
        r"border: 1px solid var\(--(\w+)\);", rule("overview.css", '.state-bar span[data-state="QUEUED"]')
    )
    assert contrast(COLOURS[theme][edge], COLOURS[theme][ground]) >= AA_SHAPES


@pytest.mark.parametrize("theme", COLOURS)
def test_failures_have_an_edge_among_ends_of_attempts(theme: str):
    """Red and green alone are nearly the same for some people; both differ from the lines between them."""
    (edge,) = re.findall(r"stroke: var\(--(\w+)\);", rule("overview.css", "rect.failures"))
    (slant,) = re.findall(r"fill: var\(--(\w+)\);", rule("overview.css", ".slanted-line"))
    ((ends, part),) = re.findall(r"fill: color-mix\(in srgb, var\(--(\w+)\) (\d+)%", rule("overview.css", "rect.ends"))
    (failures,) = re.findall(r"fill: var\(--(\w+)\);", rule("overview.css", ".slanted-ground"))
    colours = COLOURS[theme]
    assert contrast(colours[edge], mixed(colours[ends], int(part) / 100, colours["panel"])) >= AA_SHAPES
    assert contrast(colours[edge], colours[failures]) >= AA_SHAPES
    assert contrast(colours[slant], colours[failures]) >= AA_SHAPES


def test_busy_cores_have_one_colour_in_all_views():
    drawing = load_page()["timeline_drawing.js"].content.decode()
    assert re.findall(r"color-mix\(in srgb, var\(--(\w+)\) \$\{Math", drawing) == ["executing"]
    for selector in ("path.line.busy", "path.area.busy", ".meter span", ".core-cells .used", ".core-cells.heat b"):
        assert "var(--executing)" in rule("overview.css", selector), selector


@pytest.mark.parametrize("theme", COLOURS)
def test_numbers_on_cores_can_be_read(theme: str):
    """The colour of the cell is between these two, as the core was used."""
    ((name, part),) = re.findall(
        r"color-mix\(in srgb, var\(--(\w+)\) (\d+)%", rule("overview.css", ".core-cells.heat b")
    )
    colours = COLOURS[theme]
    for ground in (colours["track"], mixed(colours[name], int(part) / 100, colours["panel"])):
        assert contrast(colours["text"], ground) >= AA_TEXT


def test_marks_of_states_have_different_shapes():
    style = load_page()["style.css"].content.decode()
    shapes = dict(re.findall(r'^\[data-state="(\w+)"\] \.dot {\n(.*?)^}', style, re.DOTALL | re.M))
    assert {*shapes, "SUCCEED"} == {*STATE_COLOURS}
    assert len(set(shapes.values())) == len(shapes)


def test_contrast_is_computed_as_the_guidelines_say():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_styles_name_no_colour_of_their_own():
    for name in ("style.css", "frame.css", "overview.css", "jobs.css"):
        assert re.findall(r"#[0-9a-fA-F]{3,8}\b|\brgba?\([\d ,]+\)", load_page()[name].content.decode()) == []
