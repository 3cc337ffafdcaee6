"""A plugin with a headless browser, started once per file, and pages that collect errors.

The browser starts and ends processes on its own, so the leak check leaves out the processes below its driver.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes

CHROMIUM = "/usr/bin/chromium-headless-shell"
"""Chromium without windows: it takes two thirds of the processor time of the whole browser."""
FORGET = "try { localStorage.clear(); sessionStorage.clear() } catch { /* a page without storage */ }"


class Troubles(list[str]):
    """Errors, console messages, failed requests and dialogs of a page."""

    def watch(self, page: Any) -> None:
        page.on("pageerror", lambda error: self.append(f"error: {error}"))
        page.on("console", lambda message: self.append(f"console: {message.text}"))
        page.on("dialog", self._dismiss)
        page.on("response", lambda answer: self._check(answer.status, answer.url))

    def _dismiss(self, dialog: Any) -> None:
        self.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _check(self, status: int, address: str) -> None:
        if status >= 400:
            self.append(f"status {status}: {re.sub('token=.*', '', address)}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not Path(CHROMIUM).exists():
        pytest.skip("needs the package chromium-headless-shell")
    from playwright.sync_api import sync_playwright  # imported here: other tests do not need Playwright

    before = processes.descendants()
    with sync_playwright() as playwright:
        for driver in processes.descendants() - before:
            processes.set_apart(driver)
        # The sandbox of Chromium does not work for root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield started
        started.close()


@contextmanager
def open_page(browser: Any, address: str, view: str = "", *, cached: bool = True, **options: Any) -> Iterator[Any]:
    """A page without cookies or stored settings. At the end it must have had no trouble except `page.expected`.

    Pages with the same options, besides their size, share a context and its cache. `cached=False`: a new context.
    """
    viewport = options.pop("viewport", {"width": 1280, "height": 900})
    context = shared_context(browser, **options) if cached else _new_context(browser, options)
    page = context.new_page()
    page.set_viewport_size(viewport)
    page.troubles = Troubles()
    page.expected = []
    page.troubles.watch(page)
    try:
        page.goto(address)
        page.wait_for_selector("#live-mark:not([data-state=connecting])")
        if view:
            show(page, view)
        yield page
        assert [one for one in page.troubles if not any(re.search(known, one) for known in page.expected)] == []
    finally:
        page.evaluate(FORGET)
        page.close()
        context.clear_cookies()
        if not cached:
            context.close()


def shared_context(browser: Any, **options: Any) -> Any:
    """The context of earlier pages with these options, or a new one. Its blank page keeps its window open.

    A new window starts three processes, and a new context compiles all scripts again: this would be most of the work
    of a short test.
    """
    key = repr(sorted(options.items()))
    contexts = vars(browser).setdefault("contexts_of_tests", {})
    if key not in contexts:
        contexts[key] = _new_context(browser, options)
        contexts[key].new_page()
    return contexts[key]


def _new_context(browser: Any, options: dict[str, Any]) -> Any:
    context = browser.new_context(**options)
    context.set_default_timeout(20_000)
    return context


def show(page: Any, view: str) -> None:
    """Show a view: `timeline`, `job/name`."""
    page.evaluate("view => { location.hash = '#/' + view }", view)
    page.wait_for_selector(f"main[data-view={re.split('[/?]', view)[0]}]")
