"""The agent of this machine: found again or started, started anew when it dies, and gone at a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from qcg.pilotjob.agent.pidfile import is_alive, read_agent_pid, remove_agent_pid
from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.executors.process import WatchedProcess, find_agent, start_agent
from qcg.pilotjob.executors.spare import SpareAgent

log = logging.getLogger(__name__)

NAME = "local"
MOST_USELESS = 5
"""So many agents in a row may end before they have connected."""
PAUSE = 0.5
"""Seconds before another agent is started after one that was of no use; twice as long each time."""
PATIENCE = 120
"""Seconds that an agent has to connect: it, or Python itself, may come from a slow file system."""
SECOND = 1.0
ENDING = 10
"""Seconds that an agent has to end, besides the grace of its jobs."""


class LocalAgent:
    def __init__(
        self,
        executor: AgentExecutor,
        run_dir: Path,
        linger: float,
        *,
        pretend: bool = False,
        spare: SpareAgent | None = None,
    ) -> None:
        """`spare`: one to begin with, where it was started in time."""
        self._executor = executor
        self._run_dir = run_dir
        self._linger = linger
        self._pretend = pretend
        self._spare = spare
        self._process: WatchedProcess | None = None
        self._watching: asyncio.Future[None] | None = None
        self._useless = 0
        self._ending = False
        self._has_worked = False
        """It may have jobs, or know of some."""
        self.on_hopeless: Callable[[str], None] = lambda reason: None
        """Told when no agent stays alive."""

    def start(self) -> None:
        """Call the agent that an earlier manager left, or start one; it connects through the contact file."""
        self._executor.on_ready = self._at_work
        try:
            self._process = find_agent(self._run_dir, NAME, self._exited)
            self._has_worked = self._process is not None
            if self._process is not None:
                log.info("the agent of the earlier manager (pid %d) still runs", self._process.pid)
            else:
                self._process = start_agent(
                    self._run_dir, NAME, self._linger, self._exited, pretend=self._pretend, spare=self._spare
                )
                log.info("agent started (pid %d)", self._process.pid)
            self._watching = asyncio.ensure_future(self._expect(self._process))
        except OSError as error:
            self._process = None
            self._was_useless(f"no agent can be started: {error}")

    def _at_work(self, name: str) -> None:
        self._has_worked = True

    async def _expect(self, process: WatchedProcess) -> None:
        """An agent that does not connect is of no use to anybody."""
        if not await _happens(lambda: self._executor.agents[NAME].ready or process.exited.is_set(), PATIENCE):
            log.error("the agent (pid %d) does not connect; it is killed", process.pid)
            process.kill()

    def _exited(self) -> None:
        if self._ending:
            return  # its last words may still be on their way: it is not to be forgotten before them
        if self._another_is_at_work():
            self.start()
            return
        had_connected = self._executor.agents[NAME].ready
        self._executor.gone(NAME)
        if had_connected:
            self._useless = 0
            log.error("the agent has died; another one is started")
            self.start()
        else:
            path = self._run_dir / f"agent-{NAME}.log"
            self._was_useless(f"the agent ends right after its start; {path} says why")

    def _another_is_at_work(self) -> bool:
        """One that an earlier manager has started: it loaded slowly, and was there before the one of this manager."""
        info = read_agent_pid(self._run_dir, NAME)
        return self._executor.agents[NAME].ready and info is not None and is_alive(info)

    def _was_useless(self, why: str) -> None:
        self._useless += 1
        if self._useless >= MOST_USELESS:
            self.on_hopeless(why)
        elif not self._ending:
            log.error("%s; it is tried again", why)
            asyncio.get_running_loop().call_later(PAUSE * 2 ** (self._useless - 1), self._start_again)

    def _start_again(self) -> None:
        if not self._ending:
            self.start()

    async def end(self, grace: float) -> None:
        """Tell the agent to end everything it runs, and wait until it is gone."""
        self._ending = True
        said_bye = asyncio.Event()
        self._executor.on_bye = lambda name: said_bye.set()
        self._executor.tell_to_exit(grace)
        while self._useless < MOST_USELESS:
            if self._process is not None:
                await self._gone(self._process, grace, said_bye)
            if said_bye.is_set():
                break
            # It was killed, and its jobs may live on: the next one ends what it has left.
            self._useless += 1
            self.start()
        remove_agent_pid(self._run_dir, NAME)

    async def _gone(self, process: WatchedProcess, grace: float, said_bye: asyncio.Event) -> None:
        slow = asyncio.ensure_future(_happens(process.exited.is_set, int(grace) + ENDING))
        gone = asyncio.ensure_future(process.exited.wait())
        await asyncio.wait({slow, gone}, return_when=asyncio.FIRST_COMPLETED)
        slow.cancel()
        if not process.exited.is_set():
            log.error("the agent (pid %d) does not end; it is killed", process.pid)
            process.kill()
        await gone
        # Its last words may still be on their way.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(said_bye.wait(), 1)

    def abandon(self) -> None:
        """Leave the agent alone: it keeps its jobs, and waits for another manager. One that has never been at work has
        none, and may come when another manager, with an agent of its own, has long ended the run."""
        self._ending = True
        if self._watching is not None:
            self._watching.cancel()
        if self._process is not None:
            if not (self._has_worked or self._executor.agents[NAME].ready):
                self._process.kill()
            self._process.let_go()


async def _happens(condition: Callable[[], bool], seconds: int) -> bool:
    """Whether it does within so many seconds in which this process was not too busy to notice."""
    for _ in range(seconds):
        await asyncio.sleep(SECOND)
        if condition():
            return True
    return False
