"""Supervision of the single agent on this machine: found or started, restarted when it dies, ended at the shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.agent.pidfile import remove_agent_pid
from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.executors.base import ExecutorObserver
from qcg.pilotjob.executors.prestart import PrestartedAgent
from qcg.pilotjob.executors.process import WatchedProcess, find_agent, start_agent
from qcg.pilotjob.executors.restarts import Restarts
from qcg.pilotjob.executors.supervision import AgentSupervisor
from qcg.pilotjob.host.process_tree import read_process

log = logging.getLogger(__name__)

NAME = "local"
CONNECT_TIMEOUT = 120
"""Seconds that an agent has to connect: its modules may be on a slow file system."""
CHECK_INTERVAL = 1.0
"""Seconds between two checks of an agent that has to connect or to exit."""
EXIT_TIMEOUT = 10
"""Seconds that an agent has to exit, in addition to the grace period of its jobs."""


class LocalAgent(AgentSupervisor):
    def __init__(
        self,
        executor: AgentExecutor,
        observer: ExecutorObserver,
        run_dir: Path,
        linger: float,
        *,
        pretend: bool = False,
        prestarted: PrestartedAgent | None = None,
        now: Callable[[], float] = time.monotonic,
        on_connected: Callable[[int], None] = lambda pid: None,
    ) -> None:
        """`prestarted`: the first agent, where it was started early. `now`: seconds of a monotonic clock.
        `on_connected`: called with the pid of each agent that connects from this machine."""
        self._executor = executor
        self._observer = observer
        self._run_dir = run_dir
        self._linger = linger
        self._pretend = pretend
        self._prestarted = prestarted
        self._process: WatchedProcess | None = None
        self._watching: asyncio.Future[None] | None = None
        self._now = now
        self._on_connected = on_connected
        self._started = 0.0
        """When the current agent was started."""
        self._restarts = Restarts()
        self._connected_pid = 0
        """Process id of the agent that connected last; 0 if it is on another machine."""
        self._ending = False
        self._has_worked = False
        """The agent has been ready, so it may have jobs."""
        self._said_bye = asyncio.Event()

    def start(self) -> None:
        """Find the agent that an earlier manager left, or start one; it connects through the contact file."""
        self._observer.scheduling_may_begin([])  # jobs are started as soon as the agent is ready
        self._find_or_start()

    def _find_or_start(self) -> None:
        self._started = self._now()
        try:
            self._process = find_agent(self._run_dir, NAME, self._exited)
            self._has_worked = self._process is not None
            if self._process is not None:
                log.info("the agent of the earlier manager (pid %d) still runs", self._process.pid)
            else:
                self._process = start_agent(
                    self._run_dir, NAME, self._linger, self._exited, pretend=self._pretend, prestarted=self._prestarted
                )
                log.info("agent started (pid %d)", self._process.pid)
            self._watching = asyncio.ensure_future(self._expect(self._process))
        except OSError as error:
            self._process = None
            self._failed_to_start(f"no agent can be started: {error}")

    def hello(self, hello: protocol.Hello) -> None:
        self._connected_pid = hello.pid if hello.host == socket.gethostname() else 0
        if self._connected_pid:
            self._on_connected(self._connected_pid)

    def message_received(self, name: str) -> None:
        pass  # the process is watched, not its messages

    def ready(self, name: str) -> None:
        self._has_worked = True

    def bye(self, name: str) -> None:
        self._said_bye.set()

    async def _expect(self, process: WatchedProcess) -> None:
        """Kill the agent if it does not connect in time."""
        if not await _happens(lambda: self._executor.agents[NAME].ready or process.exited.is_set(), CONNECT_TIMEOUT):
            log.error("the agent (pid %d) does not connect; it is killed", process.pid)
            process.kill()

    def _exited(self) -> None:
        if self._ending:
            return  # its last messages may still be on their way
        if self._watch_connected_agent():
            return
        had_connected = self._executor.agents[NAME].ready
        self._executor.gone(NAME)
        if had_connected:
            pause = self._restarts.after_life_of(self._now() - self._started)
            log.error("the agent has died; another one is started%s", f" in {pause:g} s" if pause else "")
            self._start_after(pause)
        else:
            path = self._run_dir / f"agent-{NAME}.log"
            self._failed_to_start(f"the agent ends right after its start; {path} says why")

    def _watch_connected_agent(self) -> bool:
        """Watch another agent than the one that ended, if one is connected and alive.

        An earlier manager started it, and it was not found: it loaded slowly, or its pid file is gone."""
        ended = self._process.pid if self._process is not None else 0
        pid = self._connected_pid
        if not self._executor.agents[NAME].ready or pid in (0, ended):
            return False
        found = read_process(pid)
        if found is None or found.dead:
            return False
        try:
            self._process = WatchedProcess(pid, None, self._exited)
        except ProcessLookupError:
            return False
        log.info("an agent that was started earlier (pid %d) is connected; no other one is needed", pid)
        return True

    def _failed_to_start(self, why: str) -> None:
        pause = self._restarts.after_failed_start()
        if pause is None:
            self._observer.executor_failed(why)
        elif not self._ending:
            log.error("%s; it is tried again", why)
            self._start_after(pause)

    def _start_after(self, pause: float) -> None:
        if pause:
            asyncio.get_running_loop().call_later(pause, self._start_again)
        else:
            self._start_again()

    def _start_again(self) -> None:
        if not self._ending:
            self._find_or_start()

    async def end(self, grace: float) -> None:
        self._ending = True
        self._said_bye.clear()  # an earlier agent may have set it
        while not self._restarts.are_hopeless:
            if self._process is not None:
                await self._gone(self._process, grace)
            if self._said_bye.is_set():
                break
            # It was killed, and its jobs may live on: the next agent ends them.
            self._restarts.after_failed_start()
            self._find_or_start()
        remove_agent_pid(self._run_dir, NAME)

    async def _gone(self, process: WatchedProcess, grace: float) -> None:
        slow = asyncio.ensure_future(_happens(process.exited.is_set, int(grace) + EXIT_TIMEOUT))
        gone = asyncio.ensure_future(process.exited.wait())
        await asyncio.wait({slow, gone}, return_when=asyncio.FIRST_COMPLETED)
        slow.cancel()
        if not process.exited.is_set():
            log.error("the agent (pid %d) does not end; it is killed", process.pid)
            process.kill()
        await gone
        # Its last messages may still be on their way.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._said_bye.wait(), 1)

    def close(self) -> None:
        """Stop watching the agent: it keeps its jobs, and waits for another manager. An agent that was never ready has
        no jobs, and is killed, because it might connect when another manager has ended the run."""
        self._ending = True
        if self._watching is not None:
            self._watching.cancel()
        if self._process is not None:
            if not (self._has_worked or self._executor.agents[NAME].ready):
                self._process.kill()
            self._process.let_go()


async def _happens(condition: Callable[[], bool], seconds: int) -> bool:
    """Whether the condition becomes true within so many seconds, not counting time in which this process was busy."""
    for _ in range(seconds):
        await asyncio.sleep(CHECK_INTERVAL)
        if condition():
            return True
    return False
