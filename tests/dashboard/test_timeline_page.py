"""What the timeline says about itself in a browser: its window, its axis, its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.browser import open_page, show
from tests.support.pilot import job, run_requests
from tests.support.watched_run import page_address

LONG_AGO = 1_700_000_000
"""The begin of a window on another day than today."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    wd = tmp_path_factory.mktemp("ended")
    run_requests(wd, [job("it", "sleep", "0.1", iteration={"stop": 8})], options=("--nodes", "2x2"))
    with page_address(wd) as address:
        yield address


def test_rows_of_nodes_say_where_attempts_are_shown(browser: Any, address: str):
    with open_page(browser, address, "timeline?level=node") as page:
        page.wait_for_selector("[role=status]:has-text('2 nodes. Each column is a part of the time')")
        said = page.locator("main [role=status]").inner_text()
        assert said.endswith("Choose “by core” to see attempts.")
        assert "Zoom in" not in said
        page.click("button:text-is('by core')")
        page.wait_for_selector("summary:has-text('Attempts in this window: 8')")


@pytest.mark.parametrize(("last", "end"), [(LONG_AGO + 3600, "23:13:20"), (LONG_AGO + 7200, "2023-11-15 00:13:20")])
def test_the_window_has_its_date_at_its_begin(browser: Any, address: str, last: int, end: str):
    view = f"timeline?first={LONG_AGO}&last={last}"
    with open_page(browser, address, view, timezone_id="UTC") as page:
        page.wait_for_selector(f"[role=status]:has-text('2023-11-14 22:13:20 to {end} (')")


def test_a_run_that_was_cut_off_is_shown_until_its_last_attempt(browser: Any, address: str):
    """Not until now: that may be days later."""
    with open_page(browser, address) as page:
        page.expected = ["ERR_FAILED", "console: Failed to load"]
        summary = page.evaluate("fetch('api/summary').then((answer) => answer.json())")
        summary |= {"ended": None, "at": summary["at"] + 1e6}
        page.route("**/api/events", lambda route: route.abort())
        page.route("**/api/poll*", lambda route: route.abort())
        page.route("**/api/summary", lambda route: route.fulfill(json=summary))
        page.reload()
        show(page, "timeline")
        page.wait_for_selector("main [role=status]:has-text(' s), 4 cores.')")


def test_no_two_labels_of_a_time_axis_are_the_same(browser: Any, address: str):
    """Decimal fractions are stored a little too small or too large: 38.123 may be 38.12299990."""
    with open_page(browser, address) as page:
        labels = page.evaluate(
            """async ({ begin, lengths }) => {
                const { timeTicks } = await import(new URL("assets/format.js", document.baseURI));
                const windows = Array.from({ length: 300 }, (_, number) => begin + number * 0.0137);
                const labels = (first, length) => timeTicks(first, first + length, 12).map((tick) => tick.label);
                return lengths.flatMap((length) => windows.map((first) => labels(first, length)));
            }""",
            {"begin": LONG_AGO + 0.1, "lengths": [0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 60]},
        )
    assert len(labels) == 8 * 300
    assert [one for one in labels if len(set(one)) != len(one)] == []
