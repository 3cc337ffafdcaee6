"""What people see while jobs run: a live line on a terminal, plain lines in a pipe."""

from __future__ import annotations

import asyncio
from datetime import datetime

from qcg.pilotjob.cli.saying import on_terminal, say
from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.state import CoreState, name_of
from qcg.pilotjob.core.states import State
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.report.progress import progress_line

PLAIN_INTERVAL = 2.0
LIVE_INTERVAL = 0.2
MOST_FAILURES = 20
"""Failures that are told while the run goes on; the closing table has the rest."""


def progress_lines(pilot: Pilot) -> None:
    """A line for each start and each end."""

    def tell(transition: Transition) -> None:
        name = name_of(transition.job, transition.position)
        if transition.state is State.EXECUTING and transition.run is not None:
            say(f"{datetime.now()} executing job {name} ...")
        elif transition.state.is_final:
            say(f"{datetime.now()} job {name} finished: {transition.state.name}")

    pilot.engine.watchers.append(tell)


class Progress:
    """One line, from the core's own counters: nothing is done for each job."""

    def __init__(self) -> None:
        self._state: CoreState
        self._told = 0
        self._last = ""
        self._task: asyncio.Future[None] | None = None

    def start(self, pilot: Pilot) -> None:
        self._state = pilot.engine.state
        pilot.engine.watchers.append(self._watch)
        self._task = asyncio.ensure_future(self._live() if on_terminal() else self._plain())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _watch(self, transition: Transition) -> None:
        if transition.state is State.FAILED and (transition.position >= 0 or transition.job.iterations is None):
            self._told += 1
            if self._told <= MOST_FAILURES:
                say(f"FAILED {name_of(transition.job, transition.position)}: {transition.message}")

    async def _plain(self) -> None:
        while True:
            await asyncio.sleep(PLAIN_INTERVAL)
            self._print()

    def _print(self) -> None:
        line = progress_line(self._state)
        if line != self._last:
            say(line)
            self._last = line

    async def _live(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(Text(progress_line(self._state)), console=Console(), refresh_per_second=5, transient=True) as live:
            while True:
                await asyncio.sleep(LIVE_INTERVAL)
                live.update(Text(progress_line(self._state)))
