"""What people see while jobs run: a live line on a terminal, plain lines in a pipe."""

from __future__ import annotations

import asyncio
from datetime import datetime

from qcg.pilotjob.cli.console import any_character, on_terminal, say, tell
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.report.progress import progress_line

PLAIN_INTERVAL = 2.0
LIVE_INTERVAL = 0.2
MOST_FAILURES = 20
"""Failures that are told while the run goes on; the closing table has the rest."""


def progress_lines(pilot: Pilot) -> None:
    """A line for each start and each end."""

    def tell(transition: Transition) -> None:
        name = name_of(transition.job, transition.position)
        if transition.state is State.EXECUTING and transition.attempt is not None:
            say(f"{datetime.now()} executing job {printable(name)} ...")
        elif transition.state.is_final:
            say(f"{datetime.now()} job {printable(name)} finished: {transition.state.name}")

    pilot.engine.followers.changes.append(tell)


class Progress:
    """One line, from the core's own counters: nothing is done for each job."""

    def __init__(self, *, silent: bool = False) -> None:
        """`silent`: only notices are shown, on the standard error."""
        self._silent = silent
        self._engine: Engine
        self._told = 0
        self._last = ""
        self._task: asyncio.Future[None] | None = None

    def start(self, pilot: Pilot) -> None:
        any_character()
        self._engine = pilot.engine
        if self._silent:
            pilot.engine.followers.notices.append(tell)
            return
        pilot.engine.followers.failures.append(self._failed)
        pilot.engine.followers.notices.append(say)
        self._task = asyncio.ensure_future(self._live() if on_terminal() else self._plain())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _failed(self, transition: Transition) -> None:
        if transition.position >= 0 or transition.job.iterations is None:
            self._told += 1
            if self._told <= MOST_FAILURES:
                say(printable(f"FAILED {name_of(transition.job, transition.position)}: {transition.message}"))
            elif self._told == MOST_FAILURES + 1:
                say("further failures are counted, and told in service.log")

    async def _plain(self) -> None:
        while True:
            await asyncio.sleep(PLAIN_INTERVAL)
            self._print()

    def _line(self) -> str:
        line = progress_line(self._engine.state)
        return f"{line}; nothing can be written, service.log says why" if self._engine.stalled else line

    def _print(self) -> None:
        line = self._line()
        if line != self._last:
            say(line)
            self._last = line

    async def _live(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(Text(self._line()), console=Console(), refresh_per_second=5, transient=True) as live:
            while True:
                await asyncio.sleep(LIVE_INTERVAL)
                live.update(Text(self._line()))
