"""Progress of a run: a live line on a terminal, plain lines in a pipe."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import datetime

from qcg.pilotjob.cli.console import echo, echo_err, escape_unencodable, on_terminal
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.observers import RunObserver
from qcg.pilotjob.report.progress import pace, progress_bar, progress_line

PLAIN_INTERVAL = 2.0
LIVE_INTERVAL = 0.2
LONG = 10.0
"""Seconds left from which on plain lines have a rate and the time left."""
MOST_FAILURES = 20
"""Failures that are printed while jobs run; the closing table has the rest."""


def print_transitions(manager: Manager) -> None:
    """Print a line for each start and each end of a job."""
    manager.engine.observers.subscribe(_Transitions())


class _Transitions(RunObserver):
    def changed(self, transition: Transition) -> None:
        name = name_of(transition.job, transition.position)
        if transition.state is State.EXECUTING and transition.attempt is not None:
            echo(f"{datetime.now()} executing job {printable(name)} ...")
        elif transition.state.is_final:
            echo(f"{datetime.now()} job {printable(name)} finished: {transition.state.name}")


class _Warnings(RunObserver):
    """Prints warnings to stderr, where nobody mistakes them for the output of the command."""

    def warning(self, text: str) -> None:
        echo_err(f"Warning: {text}")


class _SilentNotices(_Warnings):
    """Prints notices to stderr too, where a program reads stdout."""

    def notice(self, text: str) -> None:
        echo_err(text)


class Progress(_Warnings):
    """A progress line from the counters of the core: its cost does not depend on the number of jobs."""

    def __init__(self, *, silent: bool = False) -> None:
        """`silent`: print notices only, to stderr."""
        self._silent = silent
        self._engine: Engine
        self._manager: Manager
        self._failures_shown = 0
        self._last = ""
        self._task: asyncio.Future[None] | None = None

    def start(self, manager: Manager) -> None:
        escape_unencodable()
        self._engine, self._manager = manager.engine, manager
        if self._silent:
            manager.engine.observers.subscribe(_SilentNotices())
            return
        manager.engine.observers.subscribe(self)
        self._task = asyncio.ensure_future(self._live() if on_terminal() else self._plain())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def notice(self, text: str) -> None:
        echo(text)

    def failed(self, transition: Transition) -> None:
        if transition.position >= 0 or transition.job.iterations is None:
            self._failures_shown += 1
            if self._failures_shown <= MOST_FAILURES:
                echo(printable(f"FAILED {name_of(transition.job, transition.position)}: {transition.message}"))
            elif self._failures_shown == MOST_FAILURES + 1:
                echo("further failures are counted, and listed in service.log")

    async def _plain(self) -> None:
        while True:
            await asyncio.sleep(PLAIN_INTERVAL)
            self._print()

    def _line(self) -> str:
        line = progress_line(self._engine.state)
        return f"{line}; nothing can be written; see service.log" if self._engine.commits.stalled else line

    def _pace(self, least: float = 0.0) -> str:
        """The rate and the time left, with a comma before it; empty if less than `least` seconds are left."""
        now = time.time()
        if not self._engine.state.unfinished:
            return ""
        expected = self._manager.summaries.expected_end(now)
        if least and (expected is None or expected.at - now < least):
            return ""
        text = pace(self._engine.activity.rates(now), expected, now)
        return f", {text}" if text else ""

    def _print(self) -> None:
        line = self._line()
        if line != self._last:
            self._last = line  # without rates and times, which change while nothing happens
            echo(line + self._pace(LONG))

    def _live_line(self, width: int, *, ascii_only: bool) -> str:
        line, speed, counts = self._line(), self._pace(), self._engine.state.unit_counts
        bar = progress_bar(counts, width - len(line) - len(speed), ascii_only=ascii_only)
        if bar:
            return bar + line + speed
        # Two lines on a narrow terminal.
        bar = progress_bar(counts, width - len(speed), ascii_only=ascii_only)
        return f"{bar}{speed.removeprefix(', ')}\n{line}" if bar else line + speed

    async def _live(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console()
        ascii_only = not console.encoding.startswith("utf")

        def text() -> Text:
            return Text(self._live_line(console.width, ascii_only=ascii_only))

        # A redirected stderr must not end up in the line on the terminal.
        shares = sys.stderr is not None and sys.stderr.isatty()
        with Live(text(), console=console, refresh_per_second=5, transient=True, redirect_stderr=shares) as live:
            while True:
                await asyncio.sleep(LIVE_INTERVAL)
                live.update(text())
