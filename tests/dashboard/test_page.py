"""The page of the dashboard in a browser, about real runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.report.state_colours import STATE_COLOURS
from tests.support.browser import open_page, show
from tests.support.pilot import job, run_requests
from tests.support.recorded_chain import record_chain
from tests.support.waiting import wait_for
from tests.support.watched_run import page_address, running, waiting_job

MARKUP = "<img/src=x/onerror=window.harmed=1>"
SCRIPT = "<script>window.harmed=1</script>"
REORDERED = "a\u202egnp.exe"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended: some jobs succeeded, some failed, one was omitted."""
    wd = tmp_path_factory.mktemp("ended")
    run_requests(
        wd,
        [
            job("prepare", "sh", "-c", "echo prepared"),
            job("sweep", "sh", "-c", "[ ${it} != 3 ]", iteration={"stop": 8}, after=["prepare"]),
            job(
                "solve",
                "sh",
                "-c",
                "sleep 0.1; echo 'energy diverged' >&2; exit 3",
                after=["prepare"],
                stderr="solve.err",
            ),
            job("publish", "true", after=["solve"]),
            job("wide", "sleep", "0.2", numCores={"exact": 2}),
        ],
        {"request": "control", "command": "finishAfterAllTasksDone"},
        options=("--nodes", "2x2"),
    )
    return wd


@pytest.fixture(scope="module")
def ended_address(ended: Path) -> Iterator[str]:
    with page_address(ended) as address:
        yield address


def text(page: Any, selector: str) -> str:
    return str(page.locator(selector).first.inner_text())


def route(page: Any) -> str:
    return str(page.evaluate("location.hash"))


def test_counts_change_without_a_reload(browser: Any, tmp_path: Path):
    with (
        running(tmp_path, waiting_job("one", "first"), waiting_job("two", "second")),
        page_address(tmp_path) as address,
        open_page(browser, address) as page,
    ):
        page.wait_for_selector(".legend [data-state=EXECUTING] b:text-is('2')")
        assert text(page, "#live-mark") == "live"
        page.evaluate("window.sameDocument = true")
        (tmp_path / "first").touch()
        page.wait_for_selector(".legend [data-state=SUCCEED] b:text-is('1')")
        assert text(page, "#done-percent") == "50.0 %"
        (tmp_path / "second").touch()
        page.wait_for_selector(".legend [data-state=SUCCEED] b:text-is('2')")
        page.wait_for_selector("#live-mark:text-is('run has ended')")
        assert page.evaluate("window.sameDocument")


def test_a_failing_job_appears_with_its_last_lines(browser: Any, tmp_path: Path):
    failing = waiting_job("solve", "go", "echo 'energy diverged at step 7' >&2", "exit 3", stderr="solve.err")
    with (
        running(tmp_path, failing, waiting_job("other", "end")),
        page_address(tmp_path) as address,
        open_page(browser, address) as page,
    ):
        page.wait_for_selector("text=No job has failed.")
        (tmp_path / "go").touch()
        page.wait_for_selector(".last-lines:has-text('energy diverged at step 7')")
        assert "exit code 3" in text(page, ".group-head")
        page.click("section[aria-label=Failures] a:text-is('solve')")
        page.wait_for_selector(".output:has-text('energy diverged at step 7')")
        (tmp_path / "end").touch()


def test_repeated_failed_attempts_are_listed_in_red(browser: Any, tmp_path: Path):
    again = waiting_job("again", "go", "[ ${attempt} = 3 ]", retry=2)
    with (
        running(tmp_path, again, waiting_job("other", "end")),
        page_address(tmp_path) as address,
        open_page(browser, address) as page,
    ):
        page.wait_for_selector("text=No job has failed.")
        assert page.query_selector("rect.failures") is None
        (tmp_path / "go").touch()
        failed = "2 attempts have failed, including those whose job was started again."
        page.wait_for_selector(f".failed-attempts:text-is('{failed}')")
        page.wait_for_selector("rect.failures")
        assert "No job has failed." in text(page, "section[aria-label=Failures]")
        (tmp_path / "end").touch()


def test_output_follows_what_a_job_writes(browser: Any, tmp_path: Path):
    talking = waiting_job(
        "talk", "go", "echo second line", "while [ ! -e end ]; do sleep 0.02; done", stdout="talk.out"
    )
    talking["execution"]["args"][1] = "echo first line; " + talking["execution"]["args"][1]
    with (
        running(tmp_path, talking),
        page_address(tmp_path) as address,
        open_page(browser, address, "job/talk") as page,
    ):
        page.wait_for_selector(".output:has-text('first line')")
        assert "second line" not in text(page, ".output")
        (tmp_path / "go").touch()
        page.wait_for_selector(".output:has-text('second line')")
        (tmp_path / "end").touch()
        page.wait_for_selector("main .badge[data-state=SUCCEED]")


def test_the_timeline_shows_what_the_registry_has(browser: Any, ended: Path, ended_address: str):
    with open_page(browser, ended_address, "timeline") as page:
        page.click("summary:has-text('Attempts in this window')")
        shown = {
            (row.locator("td").nth(0).inner_text(), row.locator("td").nth(2).inner_text().strip())
            for row in page.locator("details tbody tr").all()
        }
    expected = {("prepare", "SUCCEED"), ("solve", "FAILED"), ("wide", "SUCCEED"), ("sweep:3", "FAILED")}
    expected |= {(f"sweep:{index}", "SUCCEED") for index in range(8) if index != 3}
    assert shown == expected


def test_the_timeline_is_drawn_in_the_colours_of_states(browser: Any, ended_address: str):
    with open_page(browser, ended_address, "timeline") as page:
        page.wait_for_selector("details summary")
        colours = page.evaluate(
            """() => {
                const canvas = document.querySelector("canvas");
                const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
                let [green, red] = [0, 0];
                for (let at = 0; at < data.length; at += 4) {
                    const [r, g, b] = [data[at], data[at + 1], data[at + 2]];
                    if (g > r + 40 && g > b + 20) green += 1;
                    if (r > g + 60 && r > b + 40) red += 1;
                }
                return { green, red };
            }"""
        )
    assert colours["green"] > colours["red"] > 50


def test_bars_of_the_timeline_are_explained_and_failed_ones_are_slanted(browser: Any, ended_address: str):
    with open_page(browser, ended_address, "timeline") as page:
        page.wait_for_selector("details summary")
        keys = page.locator(".legend[aria-label='Colours of attempts'] li")
        assert keys.all_inner_texts() == ["SUCCEED", "FAILED"]
        kinds = [one.evaluate("key => getComputedStyle(key.firstChild).backgroundImage") for one in keys.all()]
        assert [kind.partition("(")[0] for kind in kinds] == ["none", "repeating-linear-gradient"]
        shades = page.evaluate(
            """async () => {
                const { drawTimeline, readColours, AXIS, gutterOf } =
                    await import(new URL("assets/timeline_drawing.js", document.baseURI));
                const shades = (state, left, width) => {
                    const canvas = document.createElement("canvas");
                    const attempts = [{ name: "", state, start: 5, end: 10, attempt: 1 }];
                    const row = { lane: 0, node: "n", core: 0, attempts };
                    const place = { first: 0, last: 10, width: 600, height: 60, rowHeight: 24, scroll: 0 };
                    drawTimeline(canvas, { ...place, rows: [row], now: null }, readColours());
                    const { data } = canvas.getContext("2d").getImageData(left, AXIS + 2, width, 16);
                    const pixels = new Uint32Array(data.buffer);
                    return new Set(pixels).size;
                };
                const begin = Math.round((gutterOf(600) + 600) / 2);
                const inside = (state) => shades(state, begin + 10, 200);
                const before = shades("FAILED", begin - 22, 20);
                return { SUCCEED: inside("SUCCEED"), FAILED: inside("FAILED"), before };
            }"""
        )
    assert shades["SUCCEED"] == 1
    assert shades["FAILED"] > 1
    assert shades["before"] == 1, "slanted lines stay inside their bar"


def test_cancel_works_with_control(browser: Any, tmp_path: Path):
    with (
        running(tmp_path, waiting_job("long", "never")),
        page_address(tmp_path, "--control") as address,
        open_page(browser, address, "job/long") as page,
    ):
        page.expected = ["404"]  # it has written nothing yet
        page.wait_for_selector("main .badge[data-state=EXECUTING]")
        page.click("[data-action=cancel]")
        page.click("dialog button:text-is('No')")
        assert text(page, "main .badge") == "EXECUTING"
        page.click("[data-action=cancel]")
        page.click("dialog button:text-is('Cancel')")
        page.wait_for_selector("main .badge[data-state=CANCELED]")


def test_without_control_nothing_can_be_changed(browser: Any, tmp_path: Path):
    with (
        running(tmp_path, waiting_job("long", "end")),
        page_address(tmp_path) as address,
        open_page(browser, address, "job/long") as page,
    ):
        page.wait_for_selector("main .badge[data-state=EXECUTING]")
        assert page.locator("[data-action]").count() == 0
        request = {
            "method": "POST",
            "headers": {"Content-Type": "application/json", "X-QCG-PM": "1"},
            "body": json.dumps({"action": "cancel", "names": ["long"]}),
        }
        page.expected = ["403", "404"]
        assert page.evaluate("request => fetch('api/act', request).then((answer) => answer.status)", request) == 403
        (tmp_path / "end").touch()
        page.wait_for_selector("main .badge[data-state=SUCCEED]")


def test_hostile_names_and_output_do_nothing(browser: Any, tmp_path: Path):
    line = "printf '<img src=x onerror=window.harmed=1>\\033[31mred\\342\\200\\256' >&2; exit 1"
    run_requests(tmp_path, [job(name, "sh", "-c", line, stderr="e") for name in (MARKUP, SCRIPT, REORDERED)])
    with page_address(tmp_path) as address, open_page(browser, address) as page:
        page.wait_for_selector(".last-lines:has-text('<img src=x onerror=window.harmed=1>\\\\x1b[31mred\\\\u202e')")
        show(page, "jobs")
        page.wait_for_selector("tbody tr:nth-child(3)")
        assert page.locator("tbody .job-name").all_inner_texts() == [MARKUP, SCRIPT, "a\\u202egnp.exe"]
        for index in range(3):
            show(page, "jobs")
            page.locator("tbody .job-name").nth(index).click()
            page.wait_for_selector(".output:has-text('\\\\x1b[31mred')")
        show(page, "timeline")
        page.click("summary:has-text('Attempts in this window')")
        page.hover("canvas")
        assert page.evaluate("window.harmed") is None
        assert page.locator("main img, main script").count() == 0


def test_everything_can_be_reached_with_the_keyboard(browser: Any, ended_address: str):
    with open_page(browser, ended_address) as page:
        press = page.keyboard.press
        focused = lambda: page.evaluate("document.activeElement.textContent")  # noqa: E731
        press("Tab")
        assert focused() == "Skip to the content"
        press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.focus("#theme-button")
        press("Tab")
        press("Tab")
        press("Tab")
        assert focused() == "Jobs"
        press("Enter")
        page.wait_for_selector("tbody tr:nth-child(5)")
        page.focus("tbody tr:first-child a")
        press("ArrowDown")
        assert focused() == "sweep"
        press("ArrowDown")
        press("Enter")
        page.wait_for_selector("main[data-view=job] h2:text-is('solve')")
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        press("Tab")
        assert page.evaluate(outline) == "solid"


def test_keys_move_and_zoom_the_timeline_and_open_an_attempt(browser: Any, ended_address: str):
    with open_page(browser, ended_address, "timeline") as page:
        page.wait_for_selector("details summary")
        page.focus("canvas")
        page.keyboard.press("+")
        wait_for(lambda: "first=" in route(page))
        zoomed = route(page)
        page.keyboard.press("ArrowRight")
        wait_for(lambda: route(page) != zoomed)
        page.keyboard.press("0")
        wait_for(lambda: route(page) == "#/timeline")
        page.keyboard.press("n")
        page.wait_for_selector("[role=status]:has-text('prepare, SUCCEED')")
        page.keyboard.press("Enter")
        page.wait_for_selector("main[data-view=job] h2:text-is('prepare')")


def test_jobs_are_searched_filtered_and_sorted(browser: Any, ended_address: str):
    with open_page(browser, ended_address, "jobs") as page:
        names = page.locator("tbody .job-name")
        page.fill("input[type=search]", "S")
        wait_for(lambda: page.locator("tbody tr").count() == 3)
        assert names.all_inner_texts() == ["sweep", "solve", "publish"]
        page.click(".chip[data-state=FAILED]")
        wait_for(lambda: page.locator("tbody tr").count() == 2)
        page.click("th button:has-text('Name')")
        page.wait_for_selector("th[aria-sort=ascending]:has-text('Name')")
        page.wait_for_selector("tbody tr:first-child:has-text('solve')")
        page.reload()
        page.wait_for_selector("tbody tr:first-child:has-text('solve')")
        page.click("a:text-is('8 iterations')")
        page.wait_for_selector("tbody tr:nth-child(8)")
        assert names.all_inner_texts() == [f"sweep:{index}" for index in range(8)]


def test_dependencies_are_drawn_around_a_job(browser: Any, ended_address: str):
    with open_page(browser, ended_address, "job/solve") as page:
        page.wait_for_selector(".dependency-graph")
        nodes = page.locator(".dependency-graph .node")
        states = {node.get_attribute("aria-label") for node in nodes.all()}
        assert states == {"prepare, SUCCEED", "solve, FAILED", "publish, OMITTED"}
        symbols = {node.text_content() for node in page.locator(".dependency-graph .symbol").all()}
        assert symbols == {STATE_COLOURS[state].symbol for state in ("SUCCEED", "FAILED", "OMITTED")}
        page.locator(".dependency-graph .node", has_text="publish").click()
        page.wait_for_selector("h2:text-is('publish')")


def test_the_analysis_shows_the_efficiency_and_the_slowest_launches(browser: Any, ended_address: str):
    with open_page(browser, ended_address, "analysis") as page:
        page.wait_for_selector("h2:text-is('Efficiency of cores')")
        assert page.locator(".tile", has_text="Attempts").locator(".tile-value").inner_text() == "11"
        assert page.locator("section[aria-label=Nodes] tbody tr").count() == 2
        assert page.locator(".heat i").count() == 4
        page.locator("section[aria-label='Slowest launches'] tbody a").first.click()
        page.wait_for_selector("main[data-view=job] h2")


def test_allocations_are_listed_in_order_with_the_nodes_of_the_last(browser: Any, tmp_path: Path):
    run_requests(tmp_path, [job("one", "true")], options=("--nodes", "2x4"))
    (run_dir,) = tmp_path.glob(".qcgpjm-service-*")
    record_chain(run_dir, "4711", "<b>4712", "4713")
    with page_address(tmp_path) as address, open_page(browser, address, "allocations") as page:
        page.wait_for_selector("tbody tr:nth-child(3)")
        rows = [[cell.inner_text() for cell in row.locator("td").all()] for row in page.locator("tbody tr").all()]
    assert rows == [
        ["4711", "slurm", "–", "–", ""],
        ["<b>4712", "slurm", "–", "–", ""],
        ["4713", "slurm", "2", "8", "used last"],
    ]


def test_without_events_the_page_polls(browser: Any, tmp_path: Path):
    with (
        running(tmp_path, waiting_job("one", "go"), waiting_job("two", "end")),
        page_address(tmp_path) as address,
        open_page(browser, address) as page,
    ):
        page.expected = ["ERR_FAILED", "console: Failed to load"]
        page.route("**/api/events", lambda route: route.abort())
        page.reload()
        page.wait_for_selector(".legend [data-state=EXECUTING] b:text-is('2')")
        (tmp_path / "go").touch()
        page.wait_for_selector(".legend [data-state=SUCCEED] b:text-is('1')")
        page.wait_for_selector("#live-mark[data-state=live]")
        (tmp_path / "end").touch()


def test_the_page_shows_that_the_dashboard_is_gone(browser: Any, ended: Path):
    with page_address(ended) as address:
        context = open_page(browser, address)
        page = context.__enter__()
    page.expected = ["console: Failed to load", "ERR_"]
    page.wait_for_selector("#live-mark[data-state=reconnecting]")
    page.wait_for_selector("#connection-note:has-text('Is qcg-pm dashboard still running?')")
    assert text(page, "#connection-note").endswith("The page shows what it knew last.")
    context.__exit__(None, None, None)


def test_the_page_works_below_any_prefix(browser: Any, ended_address: str):
    before, _, token = ended_address.partition("/?")
    with open_page(browser, f"{before}/node/n1/8080/?{token}", "jobs") as page:
        page.wait_for_selector("tbody tr:nth-child(5)")
        assert "/node/n1/8080/" in page.url
        assert "token" not in page.url


@pytest.mark.parametrize("view", ["overview", "timeline", "jobs", "job/solve", "nodes", "analysis", "allocations"])
def test_no_view_is_wider_than_a_phone(browser: Any, ended_address: str, view: str):
    with open_page(browser, ended_address, view, viewport={"width": 360, "height": 740}) as page:
        page.wait_for_selector("main .panel")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.fixture(scope="module")
def long_names_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    wd = tmp_path_factory.mktemp("long")
    name = "study_" + "x" * 180
    printing = job(name, "sh", "-c", f"echo {'word ' * 100} >&2; exit 3", stderr="e")
    run_requests(wd, [printing, job("next", "true", after=[name])])
    with page_address(wd) as address:
        yield address


@pytest.mark.parametrize("view", ["overview", "timeline", "jobs", f"job/study_{'x' * 180}", "analysis"])
def test_long_names_stay_inside_of_a_phone(browser: Any, long_names_address: str, view: str):
    with open_page(browser, long_names_address, view, viewport={"width": 360, "height": 740}) as page:
        page.wait_for_selector("main .panel")
        page.wait_for_selector("tbody tr, .group, .output, details")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_page_shows_that_a_large_run_is_being_read(browser: Any, ended_address: str):
    """Its first summary has numbers, and neither reasons nor a history."""
    with open_page(browser, ended_address) as page:
        page.expected = ["ERR_FAILED", "console: Failed to load"]
        first = page.evaluate("fetch('api/summary').then((answer) => answer.json())")
        first |= {"ended": None, "history": None, "failed": [], "rates": None}
        page.route("**/api/events", lambda route: route.abort())
        page.route("**/api/poll*", lambda route: route.abort())
        page.route("**/api/summary", lambda route: route.fulfill(json=first))
        page.reload()
        page.wait_for_selector("section[aria-label=Failures] .empty:text-is('The registry is being read …')")
        assert text(page, ".hero-side") == "Every job is final."
        assert "The registry is being read …" in text(page, "section[aria-label=Utilisation]")
        assert text(page, ".tile:has-text('Elapsed') .tile-value") == "–"


def test_labels_of_a_time_axis_do_not_overlap(browser: Any, ended_address: str):
    with open_page(browser, ended_address) as page:
        numbers = page.evaluate(
            """async () => {
                const { timeTicks } = await import(new URL("assets/format.js", document.baseURI));
                return [1, 60, 3600, 86400, 3e6, 9e7].map((length) => timeTicks(1.7e9, 1.7e9 + length, 9).length);
            }"""
        )
    assert all(1 <= number <= 10 for number in numbers), numbers


def test_an_empty_timeline_is_explained(browser: Any, ended_address: str):
    with open_page(browser, ended_address, "timeline?first=1000&last=1001") as page:
        page.wait_for_selector("[role=status]:has-text('Nothing ran at this time.')")


def test_colours_follow_the_system_or_the_button(browser: Any, ended_address: str):
    background = "getComputedStyle(document.documentElement).backgroundColor"
    with open_page(browser, ended_address, color_scheme="dark") as page:
        dark = page.evaluate(background)
        page.click("#theme-button")
        assert page.get_attribute("html", "data-theme") == "light"
        assert page.evaluate(background) != dark
        page.reload()
        page.wait_for_selector("html[data-theme=light]")
        page.click("#theme-button")
        assert page.evaluate(background) == dark


def test_text_is_made_printable_by_the_same_rule(browser: Any, ended_address: str):
    from qcg.pilotjob.common.printable import printable, printable_lines
    from tests.support.hostile_texts import HARMLESS, HOSTILE

    texts = [*HOSTILE.values(), *HARMLESS, "two\nlines\tand a tab"]
    with open_page(browser, ended_address) as page:
        shown = page.evaluate(
            """async (texts) => {
                const { printable, printableLines } = await import(new URL("assets/printable.js", document.baseURI));
                return texts.map((text) => [printable(JSON.parse(text)), printableLines(JSON.parse(text))]);
            }""",
            [json.dumps(one) for one in texts],
        )
    assert shown == [[printable(one), printable_lines(one)] for one in texts]


def test_a_run_that_was_cut_off_says_that_no_manager_runs(browser: Any, tmp_path: Path):
    with (
        running(tmp_path, waiting_job("long", "never"), waiting_job("next", "never")) as process,
        page_address(tmp_path) as address,
        open_page(browser, address) as page,
    ):
        page.wait_for_selector(".legend [data-state=EXECUTING] b:text-is('2')")
        process.kill()
        process.wait(30)
        page.wait_for_selector("#live-mark:text-is('no manager')")
        page.wait_for_selector("text=are not final, and no manager runs")
