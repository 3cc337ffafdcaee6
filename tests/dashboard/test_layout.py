"""Where things are on the page: on a phone nothing is hidden at the right edge, and rows stand on one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.browser import open_page
from tests.support.pilot import job, run_requests
from tests.support.watched_run import page_address

PHONE = {"width": 360, "height": 740}
BEYOND = "one => one.scrollWidth - one.clientWidth"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    wd = tmp_path_factory.mktemp("ended")
    run_requests(
        wd, [job("solve", "sh", "-c", "echo diverged >&2; exit 3", retry=1, stderr="e")], options=("--nodes", "2x2")
    )
    with page_address(wd) as address:
        yield address


def test_all_views_are_in_sight(browser: Any, address: str):
    with open_page(browser, address, viewport=PHONE) as page:
        page.wait_for_selector("main .panel")
        assert page.locator("nav a").count() == 6
        assert page.locator("nav").evaluate(BEYOND) == 0


@pytest.mark.parametrize("view", ["jobs", "job/solve"])
def test_rows_of_tables_are_cards_that_fit(browser: Any, address: str, view: str):
    with open_page(browser, address, view, viewport=PHONE) as page:
        page.wait_for_selector("tbody tr")
        assert page.locator(".table-scroll").first.evaluate(BEYOND) == 0
        assert page.locator("thead").first.is_hidden()


def test_attempts_do_not_repeat_their_exit_code(browser: Any, address: str):
    with open_page(browser, address, "job/solve") as page:
        page.wait_for_selector("table.attempts tbody tr:nth-child(2)")
        codes = page.locator("table.attempts td[data-label='Exit code']")
        assert codes.all_inner_texts() == ["3", "3"]
        assert page.locator("table.attempts:has-text('exit code 3')").count() == 0


def test_buttons_to_zoom_stay_together(browser: Any, address: str):
    with open_page(browser, address, "timeline", viewport=PHONE) as page:
        tops = {page.locator(f"button[aria-label='{name}']").bounding_box()["y"] for name in ("Zoom in", "Zoom out")}
        assert len(tops) == 1


def test_times_and_cores_stand_apart_in_the_table_of_jobs(browser: Any, address: str):
    """Numbers are at the right of their column, and names at the left of the next one."""
    with open_page(browser, address, "jobs") as page:
        page.wait_for_selector("tbody tr")
        space = page.evaluate("getComputedStyle(document.querySelector('td[data-label=Cores]')).paddingLeft")
        assert float(space.removesuffix("px")) > 20
        bottoms = page.evaluate(
            """() => ["State", "Took", "Cores"].map((label) => {
                const cell = document.querySelector(`td[data-label=${label}]`);
                const mark = document.createElement("span");
                mark.style.cssText = "display: inline-block; width: 1px; height: 0";
                const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
                const text = texts.nextNode();
                text.parentNode.insertBefore(mark, text);
                return mark.getBoundingClientRect().bottom;
            })"""
        )
        assert max(bottoms) - min(bottoms) < 1, "they stand on one line"
