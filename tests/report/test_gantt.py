"""The Gantt chart shows every attempt at its place, in files that any viewer opens."""

from __future__ import annotations

import os
import time
import xml.etree.ElementTree as ElementTree
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.report.gantt import MOST_CELLS, WIDTH, gantt
from qcg.pilotjob.report.picture import PALETTE, Cells, Picture, Rect, Text
from qcg.pilotjob.report.svg import svg_of
from qcg.pilotjob.report.time_axis import in_words, ticks
from qcg.pilotjob.report.timeline import Timeline
from tests.report.timeline_samples import BEGAN, One, columns
from tests.support.contrast import AA_TEXT, contrast
from tests.support.hostile_texts import HOSTILE, harm_in
from tests.support.large_registry import Shape, write_registry
from tests.support.pilot import job, run, run_requests
from tests.support.project import ROOT

SVG = "{http://www.w3.org/2000/svg}"
SAMPLE = [
    One(BEGAN, BEGAN + 50, State.SUCCEED, 0),
    One(BEGAN + 50, BEGAN + 100, State.FAILED, 0),
    One(BEGAN + 25, BEGAN + 75, State.CANCELED, 1),
    One(BEGAN + 50, 0.0, State.EXECUTING, 3),
]


def bars(picture: Picture) -> dict[str, list[Rect]]:
    """The bars of attempts by the name in their title."""
    found: dict[str, list[Rect]] = {}
    for shape in picture.shapes:
        if isinstance(shape, Rect) and shape.title:
            found.setdefault(shape.title.split(":")[0], []).append(shape)
    return found


def texts(picture: Picture) -> list[str]:
    return [shape.text for shape in picture.shapes if isinstance(shape, Text)]


def test_bars_are_where_their_times_and_cores_are():
    found = bars(gantt(Timeline(columns(SAMPLE), until=BEGAN + 100), "run"))
    (first,), (second,), (third,), (running,) = (found[f"job{number}"] for number in range(4))
    assert [one.colour for one in (first, second, third, running)] == ["SUCCEED", "FAILED", "CANCELED", "EXECUTING"]
    assert first.title == "job0: SUCCEED, 50.0 s"
    assert second.x == pytest.approx(first.x + first.width, abs=1)
    assert first.width == pytest.approx(second.width, abs=1)
    assert third.x == pytest.approx(first.x + first.width / 2, abs=1)
    assert first.y == second.y < third.y < running.y
    assert running.x + running.width <= WIDTH


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("state", State.__members__)
def test_names_in_bars_can_be_read(theme: str, state: str):
    picture = gantt(Timeline(columns([One(BEGAN, BEGAN + 50, State.SUCCEED, 0)])), "run")
    (name,) = [shape for shape in picture.shapes if isinstance(shape, Text) and shape.text == "job0"]
    assert contrast(getattr(PALETTE[name.colour], theme), getattr(PALETTE[state], theme)) >= AA_TEXT


def test_failures_are_marked_without_colour():
    """A failure has a line in its bar and in its key of the legend, and no other bar has one."""
    picture = gantt(Timeline(columns(SAMPLE)), "run")
    marks = [shape for shape in picture.shapes if isinstance(shape, Rect) and shape.colour == "page"]
    rects = [shape for shape in picture.shapes if isinstance(shape, Rect) and shape.colour in ("SUCCEED", "FAILED")]

    def holds(bar: Rect, mark: Rect) -> bool:
        return bar.x == mark.x and bar.y < mark.y and mark.y + mark.height < bar.y + bar.height

    marked = [[bar.colour for bar in rects if holds(bar, mark)] for mark in marks]
    assert marked == [["FAILED"], ["FAILED"]]


def test_an_attempt_on_several_cores_is_in_the_row_of_each():
    found = bars(gantt(Timeline(columns([One(BEGAN, BEGAN + 1, State.SUCCEED, 4)])), "run"))
    assert len({one.y for one in found["job0"]}) == 3


def test_head_and_legend_say_what_is_shown():
    shown = texts(gantt(Timeline(columns(SAMPLE)), "/home/me/run"))
    assert "/home/me/run" in shown
    assert any("4 attempts on 4 cores of 2 nodes" in text for text in shown)
    assert {"SUCCEED 1", "FAILED 1", "CANCELED 1", "EXECUTING 1", "n1", "n2"} <= set(shown)


@pytest.mark.parametrize(("cores", "level"), [(12, "core"), (40, "node")])
def test_many_attempts_are_drawn_from_bins(tmp_path: Path, cores: int, level: str):
    path = tmp_path / FILE_NAME
    write_registry(path, Shape(20_000, nodes=10, cores=cores))
    with snapshot(path) as connection:
        timeline = Timeline.read(connection)
    picture = gantt(timeline, "run")
    rows = {shape.y for shape in picture.shapes if isinstance(shape, Rect) and shape.colour == "band"}
    assert len(rows) == timeline.lanes("core" if level == "core" else "node")
    cells = [shape for shape in picture.shapes if isinstance(shape, Cells)]
    assert {shape.colour for shape in cells} >= {"busy8", "FAILED"}
    assert sum(len(shape.edges) for shape in cells) < MOST_CELLS * 2
    assert len(picture.shapes) < 5000
    assert len(svg_of(picture)) < 2_000_000


def test_pictures_are_valid_and_names_do_nothing_in_them():
    made = columns([One(BEGAN, BEGAN + 50, State.SUCCEED, 0)])
    for text in (*HOSTILE.values(), "<script>alert(1)</script>", "</title><script>", '"><svg onload="x">', "]]>&lt;"):
        encoded = text.encode("utf-8", "replace")
        made.names.text, made.names.offsets[1] = encoded, len(encoded)
        source = svg_of(gantt(Timeline(made), text))
        root = ElementTree.fromstring(source)
        assert {element.tag for element in root.iter()} <= {
            f"{SVG}{tag}" for tag in ("svg", "title", "style", "rect", "path", "text")
        }
        assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
        assert harm_in(source) == []
    assert "http" not in source.replace("http://www.w3.org/2000/svg", "")


def test_colours_follow_the_scheme_of_the_viewer():
    source = svg_of(gantt(Timeline(columns(SAMPLE)), "run"))
    assert "@media (prefers-color-scheme: dark)" in source
    for colour in PALETTE.values():
        assert colour.light in source
        assert colour.dark in source


def test_a_run_without_attempts_has_a_picture():
    ElementTree.fromstring(svg_of(gantt(Timeline(columns([])), "run")))
    empty = columns([], nodes=())
    empty.parts = []
    empty.submitted = 0.0
    ElementTree.fromstring(svg_of(gantt(Timeline(empty), "run")))


def test_the_command_writes_svg_and_png(tmp_path: Path):
    run_requests(tmp_path, [job("it", "true", iteration={"stop": 8}), job("bad", "false")])
    for name in ("run.svg", "run.png"):
        done = run("qcg-pm", "report", tmp_path, "--gantt", tmp_path / name)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    root = ElementTree.parse(tmp_path / "run.svg").getroot()
    titles = {element.text for element in root.iter(f"{SVG}title")}
    assert {title.split(":")[0] for title in titles if title} >= {"it", "bad"}
    with Image.open(tmp_path / "run.png") as image:
        assert image.size == (round(WIDTH * 2), round(float(root.attrib["height"]) * 2))
        assert image.info["Title"].startswith("Gantt chart of run ")
        colours = {f"#{red:02x}{green:02x}{blue:02x}" for _, (red, green, blue) in image.getcolors(1 << 20) or []}
    assert {PALETTE[name].light for name in ("page", "SUCCEED", "FAILED", "band", "curve")} <= colours


def test_runs_that_cannot_be_drawn_are_reported_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_requests(tmp_path, [job("one", "true")])
    done = run("qcg-pm", "report", tmp_path, "--gantt", tmp_path / "run.gif")
    assert done.returncode == 2
    assert "must end with .svg or .png" in done.stderr
    done = run("qcg-pm", "report", tmp_path, "--gantt", "/none/run.svg")
    assert done.stderr == "Error: /none/run.svg could not be written: No such file or directory.\n"
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL" / "__init__.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", os.fspath(tmp_path))
    done = run("qcg-pm", "report", tmp_path, "--gantt", tmp_path / "run.png")
    assert done.returncode == 2
    assert "pip install 'qcg-pilotjob[plots]'" in done.stderr
    assert not (tmp_path / "run.png").exists()
    assert run("qcg-pm", "report", tmp_path, "--gantt", tmp_path / "run.svg").returncode == 0


@pytest.mark.parametrize("span", [0.004, 0.3, 7, 65, 900, 7200, 90_000, 1e6, 4e7])
def test_ticks_are_few_round_and_different(span: float):
    first = datetime(2026, 3, 28, 21, 13, 4, 123456).timestamp()
    found = ticks(first, first + span, 10)
    assert 1 < len(found) <= 12
    assert all(first <= tick.at <= first + span for tick in found)
    labels = [tick.label for tick in found]
    assert len(set(labels)) == len(labels)
    steps = {round(b.at - a.at, 4) for a, b in pairwise(found)}
    assert max(steps) - min(steps) <= 3600  # clocks may change


def test_ticks_are_labelled_as_people_read_clocks():
    first = datetime(2026, 1, 5, 23, 58, 50).timestamp()
    assert [tick.label for tick in ticks(first, first + 1.0, 2)] == ["23:58:50.0", "23:58:50.5", "23:58:51.0"]
    assert [tick.label for tick in ticks(first, first + 200, 4)] == ["23:59", "Jan 6, 00:00", "00:01", "00:02"]
    assert [tick.label for tick in ticks(first, first + 86400 * 3, 4)] == ["Jan 6", "Jan 7", "Jan 8"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.25, "250 ms"),
        (12.34, "12.3 s"),
        (61, "1 min 1 s"),
        (119.9, "2 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_durations_are_in_words(seconds: float, words: str):
    assert in_words(seconds) == words


DOCUMENTED = ROOT / "docs/images/gantt.svg"


def test_the_picture_in_the_documents_is_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """QCG_PM_WRITE_IMAGES=1 writes the picture again."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    write_registry(tmp_path / FILE_NAME, Shape(90, nodes=2, cores=4, failed=0.06, retried=0.05))
    with snapshot(tmp_path / FILE_NAME) as connection:
        drawn = svg_of(gantt(Timeline.read(connection), "/home/me/demo/study"))
    monkeypatch.undo()
    time.tzset()
    if os.environ.get("QCG_PM_WRITE_IMAGES") == "1":
        DOCUMENTED.write_text(drawn)
    assert DOCUMENTED.read_text() == drawn
