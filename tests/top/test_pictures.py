"""The pictures in the documents show what the terminal view draws.

`QCG_PM_PICTURES=1` writes them again.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Iterator

import pytest
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from qcg.pilotjob.report.state_colours import DARK_BACKGROUNDS, STATE_COLOURS
from qcg.pilotjob.top.model import Size
from qcg.pilotjob.top.render import screen
from qcg.pilotjob.top.views.help import SECTIONS
from tests.support.project import ROOT
from tests.support.sample_run import sample_run
from tests.top.driving import SMALL, Driver

IMAGES = ROOT / "docs/images"
PICTURES: dict[str, tuple[Size, list[str]]] = {
    "overview": (Size(110, 34), []),
    "jobs": (SMALL, ["2", *["pagedown"] * 6, *["down"] * 14, "up", "up"]),
    "job": (SMALL, ["enter"]),
    "output": (SMALL, ["l"]),
    "confirm": (SMALL, ["2", " ", " ", "c"]),
}
FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{
    font-family: "DejaVu Sans Mono", "Liberation Mono", Menlo, Consolas, monospace;
    font-size: 21px;
    line-height: {line_height}px;
    font-variant-ligatures: none;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""rich's own format loads a font from an address outside."""


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _theme() -> TerminalTheme:
    """A dark palette in which states have the colours that they have on pages."""
    dark = {colour.style: _rgb(colour.dark) for colour in STATE_COLOURS.values()}
    named = [dark.get(name, (200, 205, 212)) for name in ("black", "red", "green", "yellow")]
    named += [(88, 166, 255), dark["magenta"], dark["cyan"], (201, 209, 217)]
    bright = [(94, 101, 110), *named[1:4], dark["bright_blue"], *named[5:]]
    return TerminalTheme(_rgb(DARK_BACKGROUNDS[0]), (212, 218, 226), named, bright)


@pytest.fixture
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def picture(name: str) -> str:
    size, keys = PICTURES[name]
    driver = Driver(sample_run(), size).press(*keys)
    console = Console(
        record=True,
        width=size.width,
        file=io.StringIO(),
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,
    )
    for line in screen(driver.model, size):
        line.end = "\n"
        console.print(line, soft_wrap=True)
    return console.export_svg(title="qcg-pm top", theme=_theme(), code_format=FORMAT, unique_id=f"top-{name}")


@pytest.mark.usefixtures("_utc")
@pytest.mark.parametrize("name", PICTURES)
def test_pictures_in_the_documents_are_up_to_date(name: str):
    path = IMAGES / f"top-{name}.svg"
    drawn = picture(name)
    if os.environ.get("QCG_PM_PICTURES"):
        path.write_text(drawn)
    assert path.read_text() == drawn, "the view has changed: write the pictures again with QCG_PM_PICTURES=1"


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_need_nothing_from_outside(name: str):
    text = (IMAGES / f"top-{name}.svg").read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert re.findall(r"(?:https?:)?//[^\s\"']+|@import|@font-face", text) == []


def test_every_picture_and_every_key_is_in_the_documents():
    page = (ROOT / "docs/how-to/terminal-view.md").read_text()
    shown = set(re.findall(r"\(\.\./images/top-([\w-]+)\.svg\)", page))
    assert shown == set(PICTURES)
    described = set(re.findall(r"`([^`\n]+)`", page.partition("## Keys")[2].partition("\n## ")[0]))
    keys = {key for _, keys in SECTIONS for names, _ in keys for key in names.split()} - {"arrows"}
    assert keys <= described


def test_the_symbols_of_states_are_in_the_documents():
    page = (ROOT / "docs/how-to/terminal-view.md").read_text()
    for state, colour in STATE_COLOURS.items():
        assert f"| `{state}` | {colour.symbol} | `{colour.letter}` |" in page
