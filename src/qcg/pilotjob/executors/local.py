"""The agent of this machine: found again or started, started anew when it dies, and gone at a clean end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.executors.process import AgentProcess, find_agent, start_agent

log = logging.getLogger(__name__)

NAME = "local"
SHORT_LIFE = 5.0
"""An agent that dies this soon after its start, so many times in a row, is not started again."""
MOST_SHORT_LIVES = 3
PATIENCE = 15.0
"""Seconds that an agent which was found has to connect."""


class LocalAgent:
    def __init__(self, executor: AgentExecutor, run_dir: Path, root_wd: Path, linger: float) -> None:
        self._executor = executor
        self._run_dir = run_dir
        self._root_wd = root_wd
        self._linger = linger
        self._process: AgentProcess | None = None
        self._started = 0.0
        self._short_lives = 0
        self._ending = False
        self.on_hopeless: Callable[[str], None] = lambda reason: None
        """Told when no agent stays alive."""

    def start(self) -> None:
        """Call the agent that an earlier manager left, or start one; it connects through the contact file."""
        self._process = find_agent(self._run_dir, NAME, self._exited)
        if self._process is not None:
            log.info("the agent of the earlier manager (pid %d) still runs", self._process.pid)
            asyncio.get_running_loop().call_later(PATIENCE, self._check, self._process)
            return
        self._started = time.monotonic()
        self._process = start_agent(self._run_dir, NAME, self._root_wd, self._linger, self._exited)
        log.info("agent started (pid %d)", self._process.pid)

    def _check(self, process: AgentProcess) -> None:
        """An agent that was found and does not connect is of no use to anybody."""
        if self._executor.agents[NAME].peer is None and not process.exited.is_set() and not self._ending:
            log.error("the agent (pid %d) does not connect; it is killed", process.pid)
            process.kill()

    def _exited(self) -> None:
        self._executor.gone(NAME)
        if self._ending:
            return
        short = time.monotonic() - self._started < SHORT_LIFE
        self._short_lives = self._short_lives + 1 if short else 0
        if self._short_lives >= MOST_SHORT_LIVES:
            self.on_hopeless(f"the agent ends right after its start; {self._run_dir / f'agent-{NAME}.log'} says why")
            return
        log.error("the agent has died; another one is started")
        self.start()

    async def end(self, grace: float) -> None:
        """Tell the agent to end everything it runs, and wait until it is gone."""
        self._ending = True
        if self._process is None or self._process.exited.is_set():
            return
        said_bye = asyncio.Event()
        self._executor.on_bye = lambda name: said_bye.set()
        self._executor.tell_to_exit(grace)
        try:
            await asyncio.wait_for(self._process.exited.wait(), grace + 10)
            # Its last words may still be on their way.
            await asyncio.wait_for(said_bye.wait(), 1)
        except asyncio.TimeoutError:
            if not self._process.exited.is_set():
                log.error("the agent (pid %d) does not end; it is killed", self._process.pid)
                self._process.kill()
                await self._process.exited.wait()

    def abandon(self) -> None:
        """Leave the agent alone: it keeps its jobs, and waits for another manager."""
        self._ending = True
        if self._process is not None:
            self._process.let_go()
