"""The page of one job in a browser: its buttons, and its output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.browser import open_page, show
from tests.support.pilot import job
from tests.support.waiting import wait_for
from tests.support.watched_run import page_address, running, waiting_job


def actions(page: Any) -> list[str]:
    # At once: buttons may go while a list of them is walked.
    return list(page.locator("[data-action]").evaluate_all("buttons => buttons.map((one) => one.dataset.action)"))


def act(page: Any, action: str) -> None:
    page.click(f"[data-action={action}]")
    page.click("dialog [data-kind=main]")


def test_only_waiting_jobs_are_held_and_only_held_ones_released(browser: Any, tmp_path: Path):
    with (
        running(
            tmp_path,
            waiting_job("long", "end"),
            {**job("kept", "true"), "hold": True},
            job("later", "true", after=["long"]),
        ),
        page_address(tmp_path, "--control") as address,
        open_page(browser, address, "job/long") as page,
    ):
        page.expected = ["404"]  # it has written nothing yet
        page.wait_for_selector("main .badge[data-state=EXECUTING]")
        assert actions(page) == ["cancel"]
        show(page, "job/later")
        page.wait_for_selector("[data-action=hold]")
        assert actions(page) == ["cancel", "hold"]
        act(page, "hold")
        page.wait_for_selector("[data-action=release]")
        assert actions(page) == ["cancel", "release"]
        show(page, "job/kept")
        page.wait_for_selector("h2:text-is('kept')")
        page.wait_for_selector("[data-action=release]")
        assert actions(page) == ["cancel", "release"]
        act(page, "release")
        page.wait_for_selector("main .badge[data-state=SUCCEED]")
        assert actions(page) == []
        (tmp_path / "end").touch()


def test_iterations_are_held_and_released_one_by_one(browser: Any, tmp_path: Path):
    sweep = job("sweep", "true", iteration={"stop": 3}, after=["long"])
    with (
        running(tmp_path, waiting_job("long", "end"), sweep),
        page_address(tmp_path, "--control") as address,
        open_page(browser, address, "job/sweep:1") as page,
    ):
        page.wait_for_selector("[data-action=hold]")
        act(page, "hold")
        page.wait_for_selector("[data-action=release]")
        assert actions(page) == ["cancel", "release"]
        show(page, "job/sweep")
        page.wait_for_selector("h2:text-is('sweep')")
        page.wait_for_selector("[data-action=release]")
        assert actions(page) == ["cancel", "hold", "release"]
        act(page, "hold")
        wait_for(lambda: actions(page) == ["cancel", "release"])
        show(page, "job/sweep:2")
        page.wait_for_selector("h2:text-is('sweep:2')")
        page.wait_for_selector("[data-action=release]")
        act(page, "release")
        page.wait_for_selector("[data-action=hold]")
        show(page, "job/sweep")
        page.wait_for_selector("h2:text-is('sweep')")
        wait_for(lambda: actions(page) == ["cancel", "hold", "release"])
        (tmp_path / "end").touch()


def test_times_of_holds_are_shown_to_the_second(browser: Any, tmp_path: Path):
    with (
        running(tmp_path, waiting_job("long", "end"), {**job("kept", "true"), "hold": True}),
        page_address(tmp_path) as address,
        open_page(browser, address, "job/kept") as page,
    ):
        page.wait_for_selector(".why:text-matches('^it is held since [-0-9]{10} [:0-9]{8}; release it with')")
        (tmp_path / "end").touch()
    with page_address(tmp_path) as address, open_page(browser, address, "job/kept") as page:
        page.wait_for_selector(".why:text-matches('^it is held since [-0-9]{10} [:0-9]{8}; qcg-pm run')")


def test_there_is_something_to_follow_once_a_job_has_written(browser: Any, tmp_path: Path):
    silent = waiting_job("silent", "go", "echo ready", "while [ ! -e end ]; do sleep 0.02; done", stdout="silent.out")
    with (
        running(tmp_path, silent, job("later", "true", after=["silent"])),
        page_address(tmp_path) as address,
        open_page(browser, address, "job/later") as page,
    ):
        page.expected = ["404"]
        follow = page.locator("button:text-is('follow')")
        page.wait_for_selector("text=This job has no output files yet.")
        assert not follow.is_visible()
        show(page, "job/silent")
        page.wait_for_selector("text=empty: ")
        assert not follow.is_visible()
        (tmp_path / "go").touch()
        page.wait_for_selector(".output:has-text('ready')")
        assert follow.is_visible()
        (tmp_path / "end").touch()
        page.wait_for_selector("main .badge[data-state=SUCCEED]")
        follow.wait_for(state="hidden")
