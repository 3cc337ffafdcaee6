"""Views fit the screen, contain no harmful text, and show the important values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from qcg.pilotjob.report.run_summary import Group, History, NodeSummary
from qcg.pilotjob.top.bars import graph, resample, shares, state_bar
from qcg.pilotjob.top.model import Look, Resized, Size
from qcg.pilotjob.top.text import clock, cut, percent, span, stopwatch, wrapped
from qcg.pilotjob.watch.source import AttemptLine, JobLine
from tests.support.hostile_texts import HARMLESS, HOSTILE, harm_in
from tests.support.memory_run import NOW, MemoryRun, summary_of
from tests.support.sample_run import sample_run
from tests.top.driving import LARGE, SMALL, Driver

ASCII = Look(ascii=True, colour=False)
VIEWS = {
    "overview": [],
    "jobs": ["2"],
    "typing": ["2", "/", "x"],
    "question": ["2", "c"],
    "job": ["enter"],
    "output": ["l"],
    "help": ["?"],
}
SIZES = [SMALL, LARGE, Size(40, 10), Size(300, 80), Size(20, 5), Size(1, 1), Size(5, 3), Size(120, 12)]


@pytest.mark.parametrize("look", [Look(), ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.width}x{size.height}")
def test_every_view_fills_the_screen_exactly(size: Size, view: str, look: Look):
    for run in (sample_run(), MemoryRun()):
        driver = Driver(run, size, look).press(*VIEWS[view])
        assert len(driver.lines) == size.height
        assert {cell_len(line) for line in driver.lines} == {size.width}


@pytest.mark.parametrize("view", VIEWS)
def test_ascii_is_all_there_is_without_utf8(view: str):
    run = sample_run()
    run.lines += [JobLine(text, "EXECUTING", NOW, NOW) for text in HARMLESS]
    for size in (SMALL, LARGE):
        assert Driver(run, size, ASCII).press(*VIEWS[view]).text.isascii()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("trick", HOSTILE)
def test_hostile_texts_are_harmless_in_every_view(trick: str, view: str):
    text = HOSTILE[trick]
    lines = [JobLine(text, "FAILED", NOW, NOW, NOW + 1, message=text, grant=text)]
    group = Group(1, "exit", text, text, (text, text))
    summary = summary_of(
        lines,
        directory=text,
        host=text,
        failed=(group,),
        waiting=(group,),
        nodes=(NodeSummary(text, 4, 1, state="lost", reason=text), NodeSummary(text, 4, 1)),
        notices=(text,),
    )
    run = MemoryRun(lines, summary)
    run.whys[text] = text
    run.outputs[text, "stdout"] = text.encode(errors="replace")
    driver = Driver(run, LARGE).press(*VIEWS[view])
    assert harm_in(driver.text) == []


def test_names_that_look_like_markup_are_shown_as_they_are():
    driver = Driver(MemoryRun([JobLine("[red]a[/red] :smile:", "QUEUED", NOW)]), LARGE).press("2")
    assert "[red]a[/red] :smile:" in driver.text


def test_the_overview_shows_what_matters_on_a_small_screen():
    text = Driver(sample_run(), SMALL).text
    for part in (
        "62 %",
        "6,170 of 10,000",
        "✓ 6,120 succeeded",
        "✗ 47 failed",
        "· 3,706 waiting",
        "ends in 52 min",
        "1.2/s ended",
        "Cores 236 of 256 in use, 92 %",
        "n13 lost: its agent",
        "exit code 1, after 2 retries",
        "for example case_0413",
        "FloatingPointError",
        "Waiting 3,706",
        "it is held since",
        "● live on login2",
    ):
        assert part in text, part


def test_the_selected_group_is_always_on_the_screen():
    groups = tuple(Group(9 - n, "exit", f"reason {n}", f"job_{n}", ("last line",) * 8) for n in range(8))
    for height in (12, 16, 24, 50):
        run = MemoryRun([], summary_of(units={"FAILED": 1}, failed=groups, waiting=groups))
        driver = Driver(run, Size(80, height))
        for place in range(16):
            assert f"for example job_{place % 8}" in driver.text, (height, place)
            driver.press("down")


def test_a_run_without_manager_is_distinguished_from_an_ended_run():
    run = sample_run()
    run.change(alive=False)
    assert "○ no manager" in Driver(run).text
    assert "the manager ended before all jobs did" in Driver(run).text
    run.change(ended=NOW)
    assert "○ ended" in Driver(run).text
    assert "ended at" in Driver(run).text


@pytest.mark.parametrize(
    ("state", "alive", "shown"), [("EXECUTING", True, True), ("QUEUED", True, False), ("EXECUTING", False, False)]
)
def test_the_run_time_counts_only_while_something_runs(state: str, alive: bool, shown: bool):
    line = JobLine("sweep", state, NOW - 900, NOW - 691, iterations={"SUCCEED": 4, state: 4})
    run = MemoryRun([line], summary_of([line], alive=alive))
    run.attempts["sweep"] = (AttemptLine(1, "EXECUTING", started=NOW - 691),)
    driver = Driver(run, LARGE).press("2")
    assert ("11:31" in driver.text) is shown
    text = driver.press("enter").text
    assert f"started {clock(NOW - 691, NOW)}" in text
    assert ("runs for 11:31" in text) is shown
    assert ("11:31" in text) is alive, "the attempt itself still runs"


def test_a_rerun_is_distinguished_from_a_retry():
    run = sample_run()
    attempts = run.attempts["case_0413"]
    run.attempts["case_0413"] = tuple(replace(one, rerun_at=NOW) if one.number == 2 else one for one in attempts)
    run.lines = [line for line in run.lines if line.name == "case_0413"]
    text = Driver(run, LARGE).press("2", "enter").text
    assert text.count("repeated: exit") == 1
    assert text.count(f"run again at {clock(NOW, NOW)}") == 1


def test_a_stalled_registry_is_shown():
    run = sample_run()
    run.change(stalled=True)
    assert "The registry cannot be written" in Driver(run).text


@pytest.mark.parametrize("count", [0, 1, 16, 17, 200])
def test_every_node_is_counted(count: int):
    nodes = tuple(NodeSummary(f"n{n}", 16, n % 17) for n in range(count))
    run = MemoryRun([], summary_of(units={"QUEUED": 1}, nodes=nodes, more_nodes=1000 if count == 200 else 0))
    for size in (SMALL, LARGE):
        text = Driver(run, size).text
        assert f"Nodes {count + (1000 if count == 200 else 0):,}" in text


def test_jobs_have_more_columns_on_wide_screens():
    small, large = (Driver(sample_run(), size).press("2").lines[2].split() for size in (SMALL, LARGE))
    assert small == ["name", "state", "time", "message"]
    assert large == ["name", "state", "time", "started", "tries", "exit", "cpu", "memory", "where", "message"]


def test_rows_that_have_not_arrived_are_dots():
    driver = Driver(sample_run()).press("2")
    driver.model = replace(driver.model, jobs=replace(driver.model.jobs, first=300, cursor=300))
    assert driver.lines[5].strip() == "..."


def test_a_removed_job_and_an_empty_list_are_explained():
    driver = Driver(sample_run())
    driver.run.lines.clear()
    assert "There is no job case_0413 in this run." in driver.press("enter").text
    assert "There are no jobs yet." in driver.press("2").text
    assert "No job matches the filter." in driver.press("s").text


def test_names_are_cut_and_keep_their_columns():
    lines = [JobLine("数値計算" * 20, "EXECUTING", NOW, NOW - 5), JobLine("x" * 500, "EXECUTING", NOW, NOW - 5)]
    driver = Driver(MemoryRun(lines), SMALL).press("2")
    places = {cell_len(line.partition("EXECUTING")[0]) for line in driver.lines[3:5]}
    assert len(places) == 1
    assert all("…" in line for line in driver.lines[3:5])


def test_the_same_model_is_drawn_for_another_size():
    driver = Driver(sample_run())
    driver.send(Resized(LARGE))
    assert len(driver.lines) == 50
    assert "Ends of jobs" in driver.text


@given(st.lists(st.integers(0, 10**7), max_size=8), st.integers(0, 300))
def test_parts_of_a_bar_fill_it_and_none_is_lost(counts: list[int], width: int):
    columns = shares(counts, width)
    assert sum(columns) == (width if sum(counts) else 0)
    assert all(column >= 0 for column in columns)
    if width >= len(counts):
        assert all(bool(column) == bool(count) for count, column in zip(counts, columns, strict=True))


def test_bars_distinguish_states_without_colour():
    counts = {"SUCCEED": 6, "FAILED": 2, "EXECUTING": 1, "QUEUED": 3}
    assert state_bar(counts, 12, Look(colour=False)).plain == "✓✓✓✓✓✓✗✗▸···"
    assert state_bar(counts, 12, ASCII).plain == "++++++xx>..."
    assert state_bar(counts, 12, Look()).plain == "█" * 12


def test_graphs_show_their_values():
    assert [line.plain for line in graph([0, 0.25, 0.5, 0.75, 1], 2, Look())] == ["   ▄█", " ▄███"]
    assert [line.plain for line in graph([0, 0.01, 1], 1, Look())] == [" ▁█"]
    assert [line.plain for line in graph([0, 0.4, 1], 1, ASCII)] == [" .#"]


@given(st.lists(st.floats(0, 1e9), max_size=600), st.integers(1, 300))
def test_resampling_keeps_the_sum(parts: list[float], width: int):
    columns = resample(parts, width)
    assert len(columns) == (width if parts else 0)
    assert sum(columns) == pytest.approx(sum(parts), rel=1e-6, abs=1e-6)


def test_a_history_without_cores_is_drawn():
    history = History(NOW, 1.0, (0.0, 0.0), (0.0, 4.0), (0, 0), (0, 0), (0, 0))
    run = MemoryRun([], summary_of(units={"QUEUED": 1}, history=history))
    assert "100 %" in Driver(run, LARGE).text


@pytest.mark.parametrize(
    ("seconds", "words", "column"),
    [
        (-5, "0 s", "0.00 s"),
        (0.4, "0 s", "0.40 s"),
        (42, "42 s", "42 s"),
        (59.7, "1 min", "1:00"),
        (725, "12 min", "12:05"),
        (3723, "1 h 02 min", "1:02:03"),
        (360_000, "4 d 4 h", "4d 04h"),
    ],
)
def test_durations_are_formatted(seconds: float, words: str, column: str):
    assert span(seconds) == words
    assert stopwatch(seconds) == column


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "0 %"), (0, 5, "0 %"), (1, 10**6, "1 %"), (999_999, 10**6, "99 %"), (5, 5, "100 %")],
)
def test_values_are_not_rounded_to_zero_or_one_hundred_percent(part: int, whole: int, text: str):
    assert percent(part, whole) == text


@given(st.text(max_size=200), st.integers(0, 60))
def test_cut_and_wrapped_text_fits(text: str, width: int):
    for look in (Look(), ASCII):
        assert cell_len(cut(text, width, look)) <= width
        lines = wrapped(text, width + 2, look)
        assert all(cell_len(line) <= width + 2 for line in lines)
