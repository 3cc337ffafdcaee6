"""The page is fast with a million attempts; the short tier has a tenth of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.dashboard.html_report import html_report
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.runs.rundir import PREFIX
from tests.support.browser import open_page, show
from tests.support.large_registry import Shape, write_registry
from tests.support.tiers import per_tier
from tests.support.waiting import wait_for
from tests.support.watched_run import page_address

pytestmark = [
    pytest.mark.sampled,
    pytest.mark.timeout(900),
]

FIRST_PAINT = 2.0
ZOOM = 0.2
LARGEST_PAGE = 10_000_000
TRIES = 40
"""Other tests share the machine: one try of so many has to be as fast as the page is alone."""

# From the wheel to the first frame that shows the rows of the new window.
SECONDS_TO_ZOOM = """async ({ delta, x, y }) => {
    const canvas = document.querySelector("canvas");
    const box = canvas.getBoundingClientRect();
    const frame = () => new Promise(requestAnimationFrame);
    const began = performance.now();
    const place = { clientX: box.left + x, clientY: box.top + y };
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: delta, cancelable: true, ...place }));
    await frame();
    await frame();
    while (document.querySelector("[data-ready]").dataset.ready !== "true") await frame();
    return (performance.now() - began) / 1000;
}"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wd = tmp_path_factory.mktemp("large")
    (wd / f"{PREFIX}large").mkdir(mode=0o700)
    write_registry(wd / f"{PREFIX}large" / FILE_NAME, Shape(per_tier(100_000, 1_000_000)))
    return wd


@pytest.fixture(scope="module")
def address(large: Path) -> Iterator[str]:
    with page_address(large) as address:
        yield address


def fastest(measure: Callable[[], float], limit: float) -> float:
    """The shortest of several measurements; the first one within the limit is enough."""
    found = []
    for _ in range(TRIES):
        found.append(measure())
        if found[-1] < limit:
            break
    return min(found)


def test_the_page_is_painted_soon(browser: Any, address: str):
    def seconds() -> float:
        with open_page(browser, address) as page:
            page.wait_for_selector(".hero-number")
            return float(page.evaluate("performance.now()")) / 1000

    assert fastest(seconds, FIRST_PAINT) < FIRST_PAINT


@pytest.mark.parametrize("level", ["core", "node"])
def test_zooming_the_timeline_takes_a_moment(browser: Any, address: str, level: str):
    with open_page(browser, address, f"timeline?level={level}") as page:
        page.set_default_timeout(120_000)
        page.wait_for_selector("[data-ready=true] canvas")

        def in_and_out() -> float:
            steps = [{"delta": delta, "x": 500, "y": 200} for delta in (-300, -300, -300, 300, 300, 300)]
            return max(float(page.evaluate(SECONDS_TO_ZOOM, step)) for step in steps)

        assert fastest(in_and_out, ZOOM) < ZOOM


def test_the_table_of_jobs_is_shown_page_by_page(browser: Any, address: str):
    with open_page(browser, address, "jobs") as page:
        page.set_default_timeout(60_000)
        page.wait_for_selector("tbody tr:nth-child(100)")
        assert page.locator("tbody tr").count() == 100
        page.click("button:text-is('last')")
        wait_for(lambda: "first=" in page.evaluate("location.hash"))
        page.wait_for_selector("button:text-is('next')[disabled]")


def test_one_file_stays_small(browser: Any, large: Path, tmp_path: Path):
    file = tmp_path / "page.html"
    file.write_bytes(html_report(large))
    assert file.stat().st_size < LARGEST_PAGE
    with open_page(browser, file.as_uri(), "timeline") as page:
        page.wait_for_selector("[data-ready=true] canvas")
        step = {"delta": -300, "x": 500, "y": 200}
        assert fastest(lambda: float(page.evaluate(SECONDS_TO_ZOOM, step)), ZOOM) < ZOOM
        show(page, "jobs")
        page.wait_for_selector("text=failed ones first")
