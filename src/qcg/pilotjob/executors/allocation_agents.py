"""Supervision of the agents of an allocation: one for each node, started together, restarted, declared lost, ended."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.agent.pidfile import read_agent_pid, remove_agent_pid
from qcg.pilotjob.cluster.agent_start import AgentStart
from qcg.pilotjob.common.wording import list_names
from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.executors.base import ExecutorObserver, NodeLayout
from qcg.pilotjob.executors.contact_keeper import ContactKeeper
from qcg.pilotjob.executors.hang_safe import call_in_thread, reraise_task_error
from qcg.pilotjob.executors.ledger_reader import read_ledger
from qcg.pilotjob.executors.liveness import AgentLiveness, AgentState, LivenessTimes, Step
from qcg.pilotjob.executors.process import WatchedProcess, start_apart
from qcg.pilotjob.executors.start_kills import StartKills
from qcg.pilotjob.executors.start_log import last_line
from qcg.pilotjob.executors.supervision import AgentSupervisor
from qcg.pilotjob.host.records import Ended, Started

log = logging.getLogger(__name__)

LOG_NAME = "agents.log"
"""The output of the commands that start agents; each agent has a log of its own."""
TICK = 0.5
LONG_PAUSE = 5.0
"""Seconds between two ticks after which the silence of agents does not count: the manager was busy or suspended."""
CONTACT_TIMEOUT = 7.0
"""Seconds without a refresh of the contact file after which agents may soon take this manager for dead."""
SETTLING = 60.0
"""Seconds after which a start command for many nodes does not fail any more because of one of them."""
MOST_STARTS = 32
"""Commands that restart agents at the same time."""
MOST_FAILED_STARTS = 5
"""Start commands that may fail before any agent has connected. Then the executor fails."""
LEDGER_TIMEOUT = 5.0
"""Seconds to read the ledgers of lost agents."""
EXIT_TIMEOUT = 10.0
"""Seconds that agents have to exit, in addition to the grace period of their jobs."""


class NodeLayouts(Protocol):
    """Works out which cores and GPUs of its node the jobs on it get, from the Hello of its agent."""

    def layout_of(self, hello: protocol.Hello) -> NodeLayout: ...

    def notices(self) -> list[str]:
        """Sentences for the user, once enough agents have connected."""


class Starting(Struct):
    """A start command that is under way."""

    nodes: list[str]
    program: str
    awaited: set[str]
    """Nodes whose agents have neither reported nor been declared lost since."""


class AllocationAgents(AgentSupervisor):
    def __init__(
        self,
        executor: AgentExecutor,
        observer: ExecutorObserver,
        start: AgentStart,
        run_dir: Path,
        contact: ContactKeeper,
        layouts: NodeLayouts,
        times: LivenessTimes,
        threshold: float,
        earlier: LivenessTimes | None = None,
    ) -> None:
        """`threshold`: the fraction of all agents that has to be ready before jobs are started.

        `earlier`: the longest times that a manager of this run has given to its agents."""
        self._executor = executor
        self._observer = observer
        self._start = start
        self._contact = contact
        self._layouts = layouts
        self._run_dir = run_dir
        self._threshold = threshold
        self._gathering = True
        self._times = times
        self._earlier = earlier or times
        self._liveness: dict[str, AgentLiveness] = {}
        self._starters: dict[WatchedProcess, Starting] = {}
        """Start commands that are under way."""
        self._kills = StartKills()
        self._has_told_of_kills = False
        """The user knows that agents ended with their start command."""
        self._program = ""
        """The program of the latest start command."""
        self._began = 0.0
        self._ticked = 0.0
        self._failed_starts = 0
        self._untried_nodes = set(executor.agents)
        """Nodes for which no start command has failed yet."""
        self._has_failed = False
        """The observer knows that no agent can be started."""
        self._failed_nodes: set[str] = set()
        """Nodes whose start has failed, and the user was told so."""
        self._has_connected = False
        """An agent has connected to this manager."""
        self._ending = False
        self._changed = asyncio.Event()
        self._losing: set[asyncio.Future[None]] = set()
        """Tasks that declare nodes lost."""
        self._ticking: asyncio.Future[None] | None = None

    def start(self) -> None:
        now = self._began = self._ticked = time.monotonic()
        for name in self._executor.agents:
            has_run = read_agent_pid(self._run_dir, name) is not None
            self._liveness[name] = AgentLiveness(self._times, now, earlier=self._earlier if has_run else None)
        found = [name for name, agent in self._liveness.items() if agent.state is AgentState.AWAY]
        if found:
            log.info("agents of an earlier manager are expected on %s", list_names(found))
        self._tick()
        self._ticking = asyncio.ensure_future(self._keep_ticking())
        self._ticking.add_done_callback(reraise_task_error)

    async def end(self, grace: float) -> None:
        self._ending = True
        deadline = time.monotonic() + grace + EXIT_TIMEOUT
        while self._still_expected(deadline):
            self._changed.clear()
            await self._changed.wait()
        if self._losing:
            await asyncio.wait(self._losing)
        self._stop_ticking()
        for name in self._liveness:
            remove_agent_pid(self._run_dir, name)
        await self._end_starters()

    def close(self) -> None:
        self._ending = True
        self._stop_ticking()
        for process in self._starters:
            if not self._has_connected:
                process.kill()  # it would start agents for a manager that has ended
            process.let_go()
        self._starters = {}

    # -- messages of agents ------------------------------------------------------------------------------------------

    def hello(self, hello: protocol.Hello) -> None:
        self._observer.node_described(hello.agent, self._layouts.layout_of(hello))

    def message_received(self, name: str) -> None:
        self._liveness[name].message_received(time.monotonic())

    def ready(self, name: str) -> None:
        self._has_connected = True
        agent = self._liveness[name]
        if agent.state is AgentState.LOST:
            log.warning("the agent of %s is back; the node is used again", name)
        agent.reported(time.monotonic())
        self._check_gathered(time.monotonic())
        self._release_starters([name])

    def bye(self, name: str) -> None:
        self._liveness[name].exited()
        self._changed.set()

    # -- liveness -------------------------------------------------------------------------------------------

    async def _keep_ticking(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked > LONG_PAUSE:
            for agent in self._liveness.values():
                agent.restart_silence(now)
        self._ticked = now
        self._check_heartbeats(now)
        due = {name: agent.due(now) for name, agent in self._liveness.items()}
        for name in _with(due, Step.AWAY):
            log.warning("the agent of %s has been silent for %g s; it gets no work", name, self._times.away)
            self._executor.gone(name)
        lost = _with(due, Step.LOST)
        if lost:
            self._executor.give_up(lost)
            message = f"node lost: its agent has not been heard for {self._times.lost:g} s"
            losing = asyncio.ensure_future(self._lose_nodes(lost, message))
            self._losing.add(losing)
            losing.add_done_callback(self._losing.discard)
            losing.add_done_callback(reraise_task_error)
        never_came = _with(due, Step.NEVER_CAME)
        if never_came:
            self._observer.nodes_lost(
                never_came, f"node lost: no agent has connected from it within {self._times.never_came:g} s"
            )
        self._release_starters(lost + never_came)
        for name in _with(due, Step.GIVE_UP_START):
            self._give_up_start(name)
        self._start_agents(self._needed(_with(due, Step.START)))
        self._check_gathered(now)
        self._changed.set()

    def _check_heartbeats(self, now: float) -> None:
        heartbeats = self._executor.heartbeats
        if heartbeats is not None:
            heartbeats.ignore(name for name, agent in self._liveness.items() if agent.ignores_heartbeats(now))
            for name, at in heartbeats.heard.copy().items():
                self._liveness[name].heartbeat_received(at)
        if now - max(self._began, self._contact.refreshed_at) > CONTACT_TIMEOUT:
            # Agents that are cut off may take this manager for dead and keep their jobs, so no node may be lost.
            for agent in self._liveness.values():
                agent.heartbeat_received(now)

    async def _lose_nodes(self, names: list[str], message: str) -> None:
        """Declare nodes lost, except for jobs whose ends their agents have recorded in their ledgers."""

        def read() -> dict[str, list[tuple[int, Started | Ended]]]:
            return {name: read_ledger(self._run_dir, name) for name in names}

        try:
            found = await asyncio.wait_for(call_in_thread(read, "ledgers"), LEDGER_TIMEOUT)
        except (asyncio.TimeoutError, OSError) as error:
            log.error(
                "the ledgers of %s cannot be read: %s; records that their agents have not sent are lost",
                list_names(names),
                str(error) or f"no answer within {LEDGER_TIMEOUT:g} s",
            )
            found = {}
        # An agent that has come back meanwhile has ended its jobs, and reported them itself.
        lost = [name for name in names if self._executor.agents[name].given_up]
        for name in lost:
            self._executor.ledger_read(name, found.get(name, []))
        if lost:
            self._observer.nodes_lost(lost, message)

    def _needed(self, names: list[str]) -> list[str]:
        """The agents to start. During the shutdown, only agents whose nodes may have jobs left are needed."""
        if self._ending:
            return [name for name in names if self._liveness[name].state is AgentState.AWAY]
        return names

    # -- starting -------------------------------------------------------------------------------------------------

    def _start_agents(self, names: Sequence[str]) -> None:
        """Start all agents with one command at first. Later commands are for one node each, because a node that fails
        makes the whole command fail."""
        if not names:
            return
        together = not self._has_connected and not self._failed_starts
        groups = [list(names)] if together else [[name] for name in names]
        if not together:
            under_way = sum(agent.is_starting for agent in self._liveness.values())
            groups = groups[: max(MOST_STARTS - under_way, 0)]
        now = time.monotonic()
        self._check_kills([name for group in groups for name in group])
        for group in groups:
            spared = [seconds for name in group if (seconds := self._liveness[name].replacement_delay(now)) is not None]
            replace_after = max(spared) if len(spared) == len(group) else None
            for nodes, command in self._start.commands(group, replace_after):
                self._run_starter(nodes, command)

    def _run_starter(self, nodes: list[str], command: list[str]) -> None:
        log.log(self._log_level(nodes), "starting agents on %s", list_names(nodes))
        self._program = Path(command[0]).name
        now = time.monotonic()
        for name in nodes:
            self._liveness[name].start_began(now)
        try:
            process = start_apart(
                command, self._run_dir, LOG_NAME, self._start.environ, lambda: self._starter_ended(process)
            )
            self._starters[process] = Starting(nodes, self._program, set(nodes))
        except OSError as error:
            self._start_failed(nodes, f"{command[0]} cannot be started: {error}")

    def _starter_ended(self, process: WatchedProcess) -> None:
        starting = self._starters.pop(process)
        if self._ending:
            return
        if starting.awaited:
            output = last_line(self._run_dir / LOG_NAME, starting.nodes)
            self._start_failed(starting.nodes, f"{starting.program} failed" + (f": {output}" if output else ""))
        else:
            self._ended_for(starting.nodes)

    def _release_starters(self, names: Sequence[str]) -> None:
        """End start commands whose agents have all connected, or are lost.

        A command for many nodes that keeps running would end all its agents when one of its nodes reboots.
        """
        for process, starting in self._starters.items():
            if starting.awaited.intersection(names):
                starting.awaited.difference_update(names)
                if (
                    starting.awaited
                    or self._start.command_keeps_agents_alive
                    or not self._kills.may_kill(starting.nodes)
                ):
                    continue
                log.info(
                    "killing the command (%s) that started the agents of %s; the agents keep running",
                    starting.program,
                    list_names(starting.nodes),
                )
                self._kills.killed(starting.nodes, time.monotonic())
                process.kill_alone()

    def _check_kills(self, names: Sequence[str]) -> None:
        """Find agents that ended when their start command was killed: their next one is kept running."""
        ended = [name for name in names if self._kills.restarted(name, self._liveness[name].active)]
        if not ended:
            return
        tell = log.warning if self._has_told_of_kills else self._observer.notice
        self._has_told_of_kills = True
        tell(
            f"the agents of {list_names(ended)} ended with the command that started them ({self._program}); from now on"
            " it is kept running"
        )

    def _start_failed(self, nodes: list[str], why: str) -> None:
        self._ended_for(nodes)
        why = f"{list_names(nodes)}: {why}"
        log.log(self._log_level(nodes), "%s; %s says more", why, self._run_dir / LOG_NAME)
        if not self._has_connected:
            self._failed_starts += 1
            self._untried_nodes.difference_update(nodes)
            # Where each node has a start command of its own, a few nodes that are down say nothing about the others.
            if self._failed_starts >= MOST_FAILED_STARTS and not self._untried_nodes and not self._has_failed:
                self._has_failed = True
                self._observer.executor_failed(f"no agent can be started; {why} ({self._run_dir / LOG_NAME})")
                return
        is_expected = any(self._liveness[name].state is AgentState.EXPECTED for name in nodes)
        if self._gathering and is_expected and not self._failed_nodes.issuperset(nodes):
            self._failed_nodes.update(nodes)
            agents = "its agent" if len(nodes) == 1 else "their agents"
            seconds = f"{self._times.never_came:g} s"
            self._observer.notice(f"{why}; waiting up to {seconds} for {agents} (--nl-init-timeout)")

    def _ended_for(self, nodes: list[str]) -> None:
        now = time.monotonic()
        for name in nodes:
            self._liveness[name].start_ended(now)

    def _log_level(self, nodes: list[str]) -> int:
        """Log starts on lost nodes at a low level: they are repeated until the end of the run."""
        is_lost = all(self._liveness[name].state is AgentState.LOST for name in nodes)
        return logging.DEBUG if is_lost else logging.INFO

    def _give_up_start(self, name: str) -> None:
        for process, starting in self._starters.items():
            if starting.nodes == [name]:
                process.kill()

    # -- gathering ------------------------------------------------------------------------------------------------

    def _check_gathered(self, now: float) -> None:
        if not self._gathering or self._ending:
            return
        missing = [name for name, agent in self._liveness.items() if agent.state is not AgentState.READY]
        ready = len(self._liveness) - len(missing)
        wanted = max(math.ceil(self._threshold * len(self._liveness)), 1)
        enough = ready >= wanted and self._is_start_settled(now)
        if enough or all(self._liveness[name].state is AgentState.LOST for name in missing):
            self._gathering = False
            if ready:
                self._observer.scheduling_may_begin(self._gathering_notices(missing))
            else:
                output = last_line(self._run_dir / LOG_NAME)
                says = f"says: {output}" if output else "is empty"
                self._observer.executor_failed(
                    f"no agent has connected within {now - self._began:.0f} s; {self._run_dir / LOG_NAME} {says}"
                )

    def _gathering_notices(self, missing: list[str]) -> list[str]:
        notices = self._layouts.notices()
        if missing:
            sentence = f"no agent has connected from {list_names(missing)} so far; jobs are started on the other nodes"
            notices = [sentence, *notices]
        return notices

    def _is_start_settled(self, now: float) -> bool:
        """Whether no start command can end agents any more: one that fails on one of its nodes ends the agents of
        all of them, with their jobs."""
        together = [starting.nodes for starting in self._starters.values() if len(starting.nodes) > 1]
        waiting = any(self._liveness[name].state is AgentState.EXPECTED for nodes in together for name in nodes)
        return not waiting or now - self._began >= SETTLING

    # -- shutdown --------------------------------------------------------------------------------------------------

    def _still_expected(self, deadline: float) -> bool:
        """Whether agents have to exit yet. Ready agents have until the deadline. Agents that are away may have left
        jobs behind: they are started again, or lost in the end."""
        states = [agent.state for agent in self._liveness.values()]
        return AgentState.AWAY in states or (AgentState.READY in states and time.monotonic() < deadline)

    async def _end_starters(self) -> None:
        """End start commands: they end with the last of their agents, except for nodes that cannot be reached."""
        for seconds, end in ((2, WatchedProcess.terminate), (5, WatchedProcess.kill), (5, WatchedProcess.let_go)):
            waiting = [asyncio.ensure_future(process.exited.wait()) for process in self._starters]
            if waiting:
                await asyncio.wait(waiting, timeout=seconds)
            for future in waiting:
                future.cancel()
            for process in self._starters:
                end(process)

    def _stop_ticking(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        for losing in self._losing:
            losing.cancel()


def _with(due: dict[str, list[Step]], step: Step) -> list[str]:
    return [name for name, steps in due.items() if step in steps]
