"""The summary of a run in a browser, within a page with the rules of Jupyter. `QCG_PM_PICTURES=1` makes its picture."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from qcg.pilotjob.api.notebook import NotebookDisplay
from qcg.pilotjob.dashboard.page_files import load_page
from qcg.pilotjob.report.run_summary import RunSummary
from qcg.pilotjob.report.state_colours import STATE_COLOURS
from qcg.pilotjob.report.summary_style import COLOURS, MARKS
from tests.support.browser import Troubles, shared_context
from tests.support.contrast import AA_SHAPES, AA_TEXT, contrast
from tests.support.project import ROOT
from tests.support.sample_run import sample_run

pytestmark = [pytest.mark.timeout(300)]

FOR_DOCUMENTS = os.environ.get("QCG_PM_PICTURES") == "1"
THEMES = ("light", "dark")
LARGEST = 200_000
"""Bytes of the picture."""

JUPYTER = """
body { margin: 16px; font: 14px/1.4 system-ui, sans-serif }
body[data-jp-theme-light=false] { background: #111; color: #eee }
.cell { display: grid; grid-template-columns: 3em 1fr; gap: 10px 6px }
.prompt { color: #307fc1; font: 13px/1.9 monospace; text-align: right }
.source { padding: 5px 8px; border: 1px solid #e0e0e0; background: #f5f5f5; color: #212121; font: 13px/1.3 monospace }
.jp-RenderedHTMLCommon table { margin-left: auto; margin-right: auto; margin-bottom: 1em; table-layout: fixed }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th, .jp-RenderedHTMLCommon tr {
  padding: 0.5em; border: none; line-height: normal; vertical-align: middle; white-space: normal }
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon td, :not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon th {
  text-align: right }
.jp-RenderedHTMLCommon th { font-weight: bold }
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: white }
.jp-RenderedHTMLCommon tbody tr:nth-child(even) { background: #f5f5f5 }
"""
"""Rules of JupyterLab for outputs that are HTML, and a cell."""


class Shown(NotebookDisplay):
    """A manager with a summary."""

    def _summary_soon(self, patience: float) -> RunSummary:
        found = sample_run().summary()
        jobs = {"QUEUED": 4, "SUCCEED": 2}  # three of the queued ones have iterations
        iterations = {
            state: number - {"SUCCEED": 2, "QUEUED": 1}.get(state, 0) for state, number in found.units.items()
        }
        return replace(found, jobs=jobs, iterations=iterations)


@contextmanager
def notebook(browser: Any, prefers: str = "light", theme: str = "", style: str = JUPYTER) -> Iterator[Any]:
    """A page with the output of a cell. `theme`: that of Jupyter; without one, as in pages that are no notebooks."""
    page = shared_context(browser, device_scale_factor=2, reduced_motion="reduce").new_page()
    page.set_viewport_size({"width": 760, "height": 400})
    page.emulate_media(color_scheme=prefers)
    troubles = Troubles()
    troubles.watch(page)
    attribute = f' data-jp-theme-light="{str(theme == "light").lower()}"' if theme else ""
    cell = '<div class="prompt">[3]:</div><div class="source">manager</div><div class="prompt"></div>'
    output = f'<div class="jp-RenderedHTMLCommon">{Shown()._repr_html_()}</div>'
    try:
        page.set_content(f'<style>{style}</style><body{attribute}><div class="cell">{cell}{output}</div>')
        yield page
        assert troubles == []
    finally:
        page.close()


def value(page: Any, selector: str, property: str) -> str:
    """The computed value of a property; colours as `#rrggbb`."""
    found = str(page.eval_on_selector(selector, f"found => getComputedStyle(found)[{property!r}]"))
    channels = re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", found)
    return "#" + "".join(f"{int(channel):02x}" for channel in channels.groups()) if channels else found


def edges(page: Any, selector: str) -> tuple[float, float]:
    """The left and the right edge."""
    box = page.query_selector(selector).bounding_box()
    return box["x"], box["x"] + box["width"]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("text", ["text", "muted"])
def test_texts_can_be_read(theme: str, text: str):
    place = THEMES.index(theme)
    assert contrast(COLOURS[text][place], COLOURS["panel"][place]) >= AA_TEXT


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("state", STATE_COLOURS)
def test_names_and_marks_of_states_can_be_read(theme: str, state: str):
    assert contrast(getattr(STATE_COLOURS[state], theme), COLOURS["panel"][THEMES.index(theme)]) >= AA_TEXT


@pytest.mark.parametrize("theme", THEMES)
def test_what_waits_has_an_edge_in_the_bar(theme: str):
    place = THEMES.index(theme)
    assert contrast(COLOURS["edge"][place], COLOURS["panel"][place]) >= AA_SHAPES


def test_colours_and_marks_are_those_of_the_dashboard():
    page = load_page()["colours.css"].content.decode()
    for name, (light, dark) in COLOURS.items():
        assert f"--{name}: light-dark({light}, {dark});" in page
    style = load_page()["style.css"].content.decode()
    shapes = dict(re.findall(r'^\[data-state="(\w+)"\] \.dot {\n(.*?)^}', style, re.DOTALL | re.M))

    def bare(rule: str) -> str:
        return re.sub(r"\s", "", rule).rstrip(";")

    assert {state: bare(rule) for state, rule in shapes.items()} == {state: bare(rule) for state, rule in MARKS.items()}


@pytest.mark.parametrize(
    ("prefers", "theme", "shown"),
    [
        ("light", "", "light"),
        ("dark", "", "dark"),
        ("dark", "light", "light"),
        ("light", "dark", "dark"),
    ],
)
def test_it_is_light_or_dark_as_jupyter_is_or_else_as_the_browser_prefers(
    browser: Any, prefers: str, theme: str, shown: str
):
    place = THEMES.index(shown)
    with notebook(browser, prefers, theme) as page:
        assert value(page, ".qcg-pm", "backgroundColor") == COLOURS["panel"][place]
        assert value(page, ".facts", "color") == COLOURS["muted"][place]
        for state in ("SUCCEED", "FAILED", "EXECUTING"):
            colour = getattr(STATE_COLOURS[state], shown)
            assert value(page, f"tr[data-state={state}] .mark", "backgroundColor") == colour
            assert value(page, f"tr[data-state={state}] td", "color") == colour
            assert value(page, f".bar [data-state={state}]", "backgroundColor") == colour


@pytest.mark.parametrize("style", [JUPYTER, ""], ids=["in Jupyter", "elsewhere"])
def test_bar_table_and_texts_have_common_edges(browser: Any, style: str):
    with notebook(browser, style=style) as page:
        left, right = edges(page, ".bar")
        assert {edges(page, selector)[0] for selector in (".head b", "table", "td .mark", ".notice")} == {left}
        assert {edges(page, selector)[1] for selector in (".head span", ".facts", ".notice")} == {right}
        columns = [edges(page, f"tr[data-state={state}] td:nth-child(3)")[1] for state in ("QUEUED", "FAILED")]
        assert {*columns, edges(page, "th:nth-child(3)")[1]} == {edges(page, "table")[1]}
        assert value(page, "tr[data-state=FAILED] td:first-child", "textAlign") == "left"
        assert value(page, "tr[data-state=FAILED] td:nth-child(3)", "textAlign") == "right"
        assert value(page, "tr[data-state=FAILED] td", "lineHeight") == value(page, ".facts", "lineHeight")
        assert value(page, "tr[data-state=FAILED]", "backgroundColor") == "rgba(0, 0, 0, 0)"
        assert {value(page, f"{cell}:first-child", "paddingLeft") for cell in ("td", "th")} == {"0px"}


def test_parts_of_the_bar_are_as_wide_as_their_numbers(browser: Any):
    with notebook(browser) as page:
        left, right = edges(page, ".bar")
        (begin, end), (waiting, last) = (
            edges(page, ".bar [data-state=SUCCEED]"),
            edges(page, ".bar [data-state=QUEUED]"),
        )
        assert begin == left
        assert last == pytest.approx(right, abs=1)
        assert (end - begin) / (right - left) == pytest.approx(0.612, abs=0.02)
        assert (last - waiting) / (right - left) == pytest.approx(0.371, abs=0.02)
        assert not page.is_visible("progress")


def test_without_styles_there_are_a_bar_and_symbols(browser: Any):
    """As notebooks that are not trusted show it."""
    with notebook(browser) as page:
        page.evaluate("document.querySelectorAll('style').forEach((style) => style.remove())")
        page.evaluate("document.querySelectorAll('[style]').forEach((part) => part.removeAttribute('style'))")
        assert page.is_visible("progress")
        assert "✗ FAILED" in page.inner_text("tr[data-state=FAILED]")


def test_nothing_is_cut_off_in_a_narrow_cell(browser: Any):
    with notebook(browser) as page:
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_picture_of_the_documents(browser: Any, tmp_path: Path):
    file = (ROOT / "docs/images" if FOR_DOCUMENTS else tmp_path) / "notebook.png"
    with notebook(browser) as page:
        page.set_viewport_size(
            {"width": 760, "height": round(page.query_selector(".cell").bounding_box()["height"]) + 32}
        )
        page.screenshot(path=file, animations="disabled")
    assert 5_000 < file.stat().st_size < LARGEST
