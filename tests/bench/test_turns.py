"""Figures are computed from rounds, and written to the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import command, page
from bench.command import print_findings
from bench.finding import BenchError, Finding, Result, Series, at_least, at_most
from bench.kept import Kept, all_kept, keep
from bench.plot import draw
from bench.turns import Rate, in_turns, medians, percentile, ratio


def test_contestants_take_turns():
    order: list[str] = []
    contestants = {name: _noting(order, name) for name in "ab"}
    assert in_turns(contestants, 2) == {"a": [1.0, 4.0], "b": [2.0, 3.0]}
    assert order == ["a", "b", "b", "a"], "nobody always comes after the same one"


def test_an_optional_contestant_that_fails_is_left_out():
    def broken() -> float:
        raise BenchError("it is not there")

    why: list[str] = []
    assert in_turns({"a": lambda: 1.0, "b": broken}, 2, optional={"b": why}) == {"a": [1.0, 1.0]}
    assert why == ["it is not there"]
    with pytest.raises(BenchError, match="it is not there"):
        in_turns({"b": broken}, 2)


def _noting(order: list[str], name: str):
    def contestant() -> float:
        order.append(name)
        return float(len(order))

    return contestant


def test_a_ratio_compares_within_rounds():
    """In the second round other load slowed both contestants down."""
    measured = {"ours": [90.0, 9.0, 90.0], "limit": [100.0, 10.0, 100.0]}
    assert ratio(measured, "ours", "limit") == pytest.approx(0.9)
    assert medians(measured) == {"ours": 90.0, "limit": 100.0}


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (99.5, 100), (100, 100), (0, 1)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, value: float):
    assert percentile([float(number) for number in range(100, 0, -1)], percent) == value


def test_a_rate_is_jobs_a_second():
    rate = Rate(100, lambda count: count / 50)
    assert rate() == 50
    assert rate.jobs == 100


@pytest.mark.parametrize(("value", "reached"), [(0.79, False), (0.8, True), (1.2, True)])
def test_a_bar_is_reached_or_not(value: float, reached: bool):
    assert at_least("a", "a", value, 0.8).reached is reached
    assert at_most("a", "a", -value, -0.8).reached is reached


@pytest.mark.parametrize(
    ("value", "bar", "told"), [(0.5004, 0.5, "0.5004 s"), (0.5, 0.5, "0.50 s"), (19999.7, 20000, "19,999.7 s")]
)
def test_a_figure_is_never_rounded_to_the_other_side_of_its_bar(value: float, bar: float, told: str):
    assert page.amount(at_most("a", "a", value, bar, "s")) == told


def test_columns_stand_below_each_other_however_long_a_name_is(capsys: pytest.CaptureFixture[str]):
    print_findings(
        [at_least("a", "short", 0.5, 0.8), at_most("b", "long " * 30, 1, 5, "ms"), Finding("c", "c", 1, "s")]
    )
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.index("at least 0.8") == second.index("at most 5 ms")
    assert first.index("MISSED") == second.index("reached")


def test_a_bar_that_is_not_judged_stands_in_brackets(capsys: pytest.CaptureFixture[str]):
    judged = at_least("a", "ours", 0.5, 0.8)
    print_findings([judged, replace(judged, reached=None), Finding("c", "told", 1, "s")])
    first, second, third = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert first == "ours 0.50 at least 0.8 MISSED"
    assert second == "ours 0.50 (at least 0.8)"
    assert third == "told 1.00 s"


def test_a_page_of_less_than_full_size_has_no_verdicts():
    finding = replace(at_least("a", "ours", 0.5, 0.8), reached=None)
    assert "| ours | 0.50 | at least 0.8 |  |  |" in page.figures([Result([finding])], [])


def test_the_page_gets_figures_between_its_markers_and_nowhere_else():
    before = f"# Title\n\n{page.BEGIN}\nold\n{page.END}\n\nMore.\n"
    after = page.put_between(before, "new")
    assert after == f"# Title\n\n{page.BEGIN}\n\nnew\n\n{page.END}\n\nMore.\n"
    assert page.put_between(after, "new") == after
    with pytest.raises(page.PageError, match="no markers"):
        page.put_between("# Title\n", "new")


def test_the_benchmark_page_has_the_markers():
    page.put_between(page.PAGE.read_text(), "new")
    for name in page.SECTIONS:
        page.put_between(page.PAGE.read_text(), "new", *page.markers_of(name))


def test_figures_list_measured_missed_and_missing_values():
    result = Result(
        [
            at_least("a", "ours | limit", 0.5, 0.8, note="why"),
            at_most("b", "latency", 3.217, 5, "ms"),
            Finding("c", "a peer", 1234.5, "jobs/s", note="1.0"),
        ],
        missing=["Parsl is not there"],
    )
    text = page.figures([result], ["Measured today."])
    assert "| ours \\| limit | 0.50 | at least 0.8 | **missed** | why |" in text
    assert "| latency | 3.22 ms | at most 5 ms | reached |  |" in text
    assert "| a peer | 1,234 jobs/s | 1.0 |" in text
    assert "- not measured: Parsl is not there" in text
    assert text.startswith("Measured today.")


def test_the_plot_is_a_picture_with_a_bar_for_each_value():
    drawn = ElementTree.fromstring(draw([Series("A & B", "jobs/s", {"<one>": 1000.0, "two": 250.0}, ("two",))]))
    bars = drawn.findall("{http://www.w3.org/2000/svg}rect")[1:]
    lengths = [float(bar.get("width", "0")) for bar in bars]
    assert lengths[0] == pytest.approx(4 * lengths[1])
    assert {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")} >= {"<one>", "1,000", "A & B, jobs/s"}


def test_benchmarks_need_not_all_be_measured_in_one_go(tmp_path: Path):
    kept = Kept(
        ["commit 1"], "how", Result([at_least("a: b", "b", 1, 2)], [Series("t", "u", {"b": 1.0}, ("b",))], ["no c"])
    )
    keep(tmp_path, "a", kept)
    assert all_kept(tmp_path, ["a"], ["commit 1"]) == {"a": kept}
    assert all_kept(tmp_path, ["a", "b"], ["commit 1"]) is None
    assert all_kept(tmp_path, ["a"], ["commit 2"]) is None


def test_a_benchmark_with_a_section_of_its_own_is_written_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    begin, end = page.markers_of("remote")
    written = tmp_path / "performance.md"
    written.write_text(f"{page.BEGIN}\ncommon\n{page.END}\n{begin}\nold\n{end}\nMore.\n")
    monkeypatch.setattr(page, "PAGE", written)
    found = Kept(["a machine"], "`remote`: today", Result([at_most("remote: logins", "most logins", 1, 2)]))
    assert command._write_page({"remote": found}, ["a machine"], tmp_path)
    text = written.read_text()
    assert f"{page.BEGIN}\ncommon\n{page.END}\n" in text
    section = text.partition(begin)[2].partition(end)[0]
    assert section.strip().splitlines() == [
        "a machine",
        "",
        "- `remote`: today",
        "",
        "| what | measured | bar |  | remark |",
        "| --- | --- | --- | --- | --- |",
        "| most logins | 1.00 | at most 2 | reached |  |",
    ]
    assert not command._write_page({"remote": Kept([], "", Result(missing=["no root"]))}, [], tmp_path)
    assert written.read_text() == text
