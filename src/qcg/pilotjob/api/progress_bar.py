"""A progress bar for waits: in a notebook, or on a terminal."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol

from qcg.pilotjob.api.errors import QCGPJMAError
from qcg.pilotjob.api.notebook import has_widgets, is_notebook
from qcg.pilotjob.api.wait_progress import Counts, WaitProgress

INTERVAL = 0.5
"""Seconds between two updates."""
LAST_WAIT = 1.0
"""Seconds that the last update may take: a wait that is over, or interrupted, ends."""


class ProgressBar(Protocol):
    def show(self, counts: Counts) -> None: ...

    def close(self) -> None: ...


def progress_bar() -> ProgressBar | None:
    """A bar for a notebook or a terminal; None where this program has neither."""
    if is_notebook():
        return _WidgetBar() if has_widgets() else _HtmlBar()
    return _TerminalBar() if sys.stderr is not None and sys.stderr.isatty() else None


@contextmanager
def shown(progress: WaitProgress, ask: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[None]:
    """Show a progress bar meanwhile. `ask`: sends a request to the manager, and returns the data of its answer."""
    bar = progress_bar()
    if bar is None:
        yield
        return
    over = threading.Event()

    def update() -> None:
        question = progress.question()
        if question is not None:
            with suppress(QCGPJMAError):  # the wait itself reports it
                progress.answer(ask(question))
        bar.show(progress.counts())

    def refresh() -> None:
        while not over.is_set():
            update()
            over.wait(INTERVAL)

    refreshing = threading.Thread(target=refresh, name="progress", daemon=True)
    refreshing.start()
    try:
        yield
        over.set()
        refreshing.join(LAST_WAIT)
        if not refreshing.is_alive():
            update()
    finally:
        over.set()
        refreshing.join(LAST_WAIT)
        bar.close()


@asynccontextmanager
async def shown_async(
    progress: WaitProgress, ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
) -> AsyncIterator[None]:
    """The same in an event loop."""
    bar = progress_bar()
    if bar is None:
        yield
        return

    async def update() -> None:
        question = progress.question()
        if question is not None:
            with suppress(QCGPJMAError):
                progress.answer(await ask(question))
        bar.show(progress.counts())

    async def refresh() -> None:
        while True:
            await update()
            await asyncio.sleep(INTERVAL)

    refreshing = asyncio.ensure_future(refresh())
    try:
        yield
        await update()
    finally:
        refreshing.cancel()
        bar.close()


def _in_words(counts: Counts) -> str:
    failed = f", {counts.failed} not successful" if counts.failed else ""
    return f"{counts.done} of {counts.total} done{failed}" if counts.total else "waiting"


class _TerminalBar:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task("waiting", total=None)
        self._progress.start()

    def show(self, counts: Counts) -> None:
        self._progress.update(
            self._task, description=_in_words(counts), completed=counts.done, total=counts.total or None
        )

    def close(self) -> None:
        self._progress.stop()


class _WidgetBar:
    def __init__(self) -> None:
        from IPython.display import display
        from ipywidgets import HBox, IntProgress, Label

        self._bar, self._label = IntProgress(value=0, max=1), Label("waiting")
        display(HBox([self._bar, self._label]))  # type: ignore[no-untyped-call]

    def show(self, counts: Counts) -> None:
        self._bar.max, self._bar.value = max(counts.total, 1), counts.done
        self._bar.bar_style = "danger" if counts.failed else "success" if 0 < counts.total == counts.done else ""
        self._label.value = _in_words(counts)

    def close(self) -> None:
        """The bar stays."""


class _HtmlBar:
    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html: Callable[[str], Any] = HTML
        self._handle = display(self._html(""), display_id=True)  # type: ignore[no-untyped-call]

    def show(self, counts: Counts) -> None:
        bar = f'<progress value="{counts.done}" max="{max(counts.total, 1)}" style="width: 16em"></progress>'
        self._handle.update(self._html(f"<div>{bar} {_in_words(counts)}</div>"))

    def close(self) -> None:
        """The bar stays."""
