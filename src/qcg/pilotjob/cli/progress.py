"""What people see while jobs run: a live line on a terminal, plain lines in a pipe."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime

from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.state import CoreState, name_of
from qcg.pilotjob.core.states import State
from qcg.pilotjob.interfaces.pilot import Pilot

PLAIN_INTERVAL = 2.0
LIVE_INTERVAL = 0.2
MOST_FAILURES = 20
"""Failures that are told while the run goes on; the closing table has the rest."""


def progress_lines(pilot: Pilot) -> None:
    """A line for each start and each end."""

    def tell(transition: Transition) -> None:
        name = name_of(transition.job, transition.position)
        if transition.state is State.EXECUTING and transition.run is not None:
            print(f"{datetime.now()} executing job {name} ...", flush=True)
        elif transition.state.is_final:
            print(f"{datetime.now()} job {name} finished: {transition.state.name}", flush=True)

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
        self._task = asyncio.ensure_future(self._live() if sys.stdout.isatty() else self._plain())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _watch(self, transition: Transition) -> None:
        if transition.state is State.FAILED and (transition.position >= 0 or transition.job.iterations is None):
            self._told += 1
            if self._told <= MOST_FAILURES:
                print(f"FAILED {name_of(transition.job, transition.position)}: {transition.message}", flush=True)

    def line(self) -> str:
        state = self._state
        parts = [_done(state.job_counts, "jobs")]
        if sum(state.iteration_counts):
            parts.append(_done(state.iteration_counts, "iterations"))
        parts.append(f"{len(state.runs)} running")
        parts += [f"{state.job_counts[end]} {word}" for end, word in _WORDS if state.job_counts[end]]
        busy = sum(run.grant.ncores for run in state.runs.values())
        parts.append(f"{busy} of {state.pool.total_cores} cores busy")
        return ", ".join(parts)

    async def _plain(self) -> None:
        while True:
            await asyncio.sleep(PLAIN_INTERVAL)
            self._print()

    def _print(self) -> None:
        line = self.line()
        if line != self._last:
            print(line, flush=True)
            self._last = line

    async def _live(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(Text(self.line()), console=Console(), refresh_per_second=5, transient=True) as live:
            while True:
                await asyncio.sleep(LIVE_INTERVAL)
                live.update(Text(self.line()))


_WORDS = ((State.FAILED, "failed"), (State.CANCELED, "cancelled"), (State.OMITTED, "omitted"))


def _done(counts: list[int], what: str) -> str:
    return f"{sum(counts[State.SUCCEED :])} of {sum(counts)} {what} done"
