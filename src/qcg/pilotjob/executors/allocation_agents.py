"""The agents of an allocation's nodes: started all at once, listened to, started again, given up, and ended."""

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
from qcg.pilotjob.executors.base import ExecutorObserver
from qcg.pilotjob.executors.contact_keeper import ContactKeeper
from qcg.pilotjob.executors.hang_safe import call_in_thread, reraise_task_error
from qcg.pilotjob.executors.ledger_reader import written_by
from qcg.pilotjob.executors.liveness import Standing, Step, Times, Vigil
from qcg.pilotjob.executors.process import WatchedProcess, start_apart
from qcg.pilotjob.executors.supervision import AgentSupervisor
from qcg.pilotjob.host.records import Ended, Started

log = logging.getLogger(__name__)

LOG_NAME = "agents.log"
"""What those say who start agents; each agent has a log of its own."""
TICK = 0.5
ASLEEP = 5.0
"""A pause between two ticks that is so long says nothing about agents: the manager itself was busy or asleep."""
UNTOUCHED = 7.0
"""Seconds after which a contact file that was not touched soon counts as a dead manager's."""
SETTLING = 60.0
"""Seconds after which one `srun` for many nodes does not fail as a whole any more because of one of them."""
MOST_STARTS = 32
"""Commands that start agents again at the same time."""
MOST_USELESS = 5
"""So many commands may end before a single agent has connected."""
LAST_WORDS = 5.0
"""Seconds to read what the agents of nodes that are lost have written down."""
ENDING = 10.0
"""Seconds that agents have to end, besides the grace of their jobs."""


class NodeLayouts(Protocol):
    """Learns from agents which cores and GPUs their nodes have."""

    def hello(self, hello: protocol.Hello) -> None: ...

    def notices(self) -> list[str]:
        """Sentences for the user, once enough agents have connected."""


class Starting(Struct):
    """What a command is to bring."""

    nodes: list[str]
    awaited: set[str]
    """Those whose agents have neither reported nor been given up since."""


class AllocationAgents(AgentSupervisor):
    def __init__(
        self,
        executor: AgentExecutor,
        observer: ExecutorObserver,
        start: AgentStart,
        run_dir: Path,
        contact: ContactKeeper,
        layouts: NodeLayouts,
        times: Times,
        threshold: float,
        earlier: Times | None = None,
    ) -> None:
        """`threshold`: the part of all agents that has to be there before jobs are started.

        `earlier`: the longest times that a manager of this run has told its agents."""
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
        self._vigils: dict[str, Vigil] = {}
        self._starters: dict[WatchedProcess, Starting] = {}
        """Commands under way."""
        self._began = 0.0
        self._ticked = 0.0
        self._useless = 0
        self._met = False
        """An agent has connected to this manager."""
        self._ending = False
        self._changed = asyncio.Event()
        self._losing: set[asyncio.Future[None]] = set()
        """Nodes are being given up."""
        self._ticking: asyncio.Future[None] | None = None

    def start(self) -> None:
        now = self._began = self._ticked = time.monotonic()
        for name in self._executor.agents:
            has_run = read_agent_pid(self._run_dir, name) is not None
            self._vigils[name] = Vigil(self._times, now, earlier=self._earlier if has_run else None)
        found = [name for name, vigil in self._vigils.items() if vigil.standing is Standing.AWAY]
        if found:
            log.info("agents of an earlier manager are expected on %s", list_names(found))
        self._tick()
        self._ticking = asyncio.ensure_future(self._keep_ticking())
        self._ticking.add_done_callback(reraise_task_error)

    async def end(self, grace: float) -> None:
        self._ending = True
        deadline = time.monotonic() + grace + ENDING
        while self._still_expected(deadline):
            self._changed.clear()
            await self._changed.wait()
        if self._losing:
            await asyncio.wait(self._losing)
        self._stop_ticking()
        for name in self._vigils:
            remove_agent_pid(self._run_dir, name)
        await self._end_starters()

    def abandon(self) -> None:
        self._ending = True
        self._stop_ticking()
        for process in self._starters:
            if not self._met:
                process.kill()  # it would start agents for a manager that has ended
            process.let_go()
        self._starters = {}

    # -- what agents say ------------------------------------------------------------------------------------------

    def hello(self, hello: protocol.Hello) -> None:
        self._layouts.hello(hello)

    def heard(self, name: str) -> None:
        self._vigils[name].hears(time.monotonic())

    def ready(self, name: str) -> None:
        self._met = True
        vigil = self._vigils[name]
        if vigil.standing is Standing.LOST:
            log.warning("the agent of %s is back; the node is used again", name)
        vigil.reported(time.monotonic())
        self._gather(time.monotonic())
        self._release_starters([name])

    def bye(self, name: str) -> None:
        self._vigils[name].said_goodbye()
        self._changed.set()

    # -- what time says -------------------------------------------------------------------------------------------

    async def _keep_ticking(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked > ASLEEP:
            for vigil in self._vigils.values():
                vigil.forgive(now)
        self._ticked = now
        self._feel_pulses(now)
        due = {name: vigil.due(now) for name, vigil in self._vigils.items()}
        for name in _with(due, Step.AWAY):
            log.warning("the agent of %s has not been heard for %g s; it gets no work", name, self._times.away)
            self._executor.gone(name)
        lost = _with(due, Step.LOST)
        if lost:
            self._executor.give_up(lost)
            message = f"node lost: its agent has not been heard for {self._times.lost:g} s"
            losing = asyncio.ensure_future(self._lose(lost, message))
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
        self._start_agents(self._wanted(_with(due, Step.START)))
        self._gather(now)
        self._changed.set()

    def _feel_pulses(self, now: float) -> None:
        pulses = self._executor.pulses
        if pulses is not None:
            pulses.deaf = frozenset(name for name, vigil in self._vigils.items() if vigil.is_deaf_to(now))
            for name, at in pulses.heard.copy().items():
                self._vigils[name].pulses(at)
        if now - max(self._began, self._contact.refreshed_at) > UNTOUCHED:
            # Agents that are cut off may take this manager for dead, and keep their jobs.
            for vigil in self._vigils.values():
                vigil.pulses(now)

    async def _lose(self, names: list[str], message: str) -> None:
        """Jobs that have ended before their node was lost are not lost with it: its agent has written that down."""

        def read() -> dict[str, list[tuple[int, Started | Ended]]]:
            return {name: written_by(self._run_dir, name) for name in names}

        try:
            found = await asyncio.wait_for(call_in_thread(read, "last words"), LAST_WORDS)
        except asyncio.TimeoutError:
            log.error(
                "the ledgers of %s cannot be read in time; what their agents have not told is lost", list_names(names)
            )
            found = {}
        # One that has come back meanwhile has ended its jobs, and told of them itself.
        lost = [name for name in names if self._executor.agents[name].given_up]
        for name in lost:
            self._executor.ledger_read(name, found.get(name, []))
        if lost:
            self._observer.nodes_lost(lost, message)

    def _wanted(self, names: list[str]) -> list[str]:
        """At the end, only where jobs may be left is somebody needed to end them."""
        if self._ending:
            return [name for name in names if self._vigils[name].standing is Standing.AWAY]
        return names

    # -- starting -------------------------------------------------------------------------------------------------

    def _start_agents(self, names: Sequence[str]) -> None:
        """At first one command for all. Later ones are for one node each: a node that fails takes the whole command
        with it."""
        if not names:
            return
        together = not self._met and not self._useless
        groups = [list(names)] if together else [[name] for name in names]
        if not together:
            under_way = sum(vigil.is_starting for vigil in self._vigils.values())
            groups = groups[: max(MOST_STARTS - under_way, 0)]
        now = time.monotonic()
        for group in groups:
            spared = [seconds for name in group if (seconds := self._vigils[name].spares(now)) is not None]
            replace_after = max(spared) if len(spared) == len(group) else None
            for nodes, command in self._start.commands(group, replace_after):
                self._run_starter(nodes, command)

    def _run_starter(self, nodes: list[str], command: list[str]) -> None:
        log.log(self._importance(nodes), "starting agents on %s", list_names(nodes))
        now = time.monotonic()
        for name in nodes:
            self._vigils[name].starts(now)
        try:
            process = start_apart(
                command, self._run_dir, LOG_NAME, self._start.environ, lambda: self._starter_ended(process)
            )
            self._starters[process] = Starting(nodes, set(nodes))
        except OSError as error:
            self._was_useless(nodes, f"{command[0]} cannot be started: {error}")

    def _starter_ended(self, process: WatchedProcess) -> None:
        starting = self._starters.pop(process)
        if self._ending:
            return
        if starting.awaited:
            self._was_useless(starting.nodes, f"what started the agents of {list_names(starting.nodes)} has ended")
        else:
            self._ended_for(starting.nodes)

    def _release_starters(self, names: Sequence[str]) -> None:
        """No more is expected of commands for these nodes; those of which nothing is expected at all are ended.

        A command for many nodes that lives on ends the agents of all of them when one of them boots anew.
        """
        for process, starting in self._starters.items():
            if starting.awaited.intersection(names):
                starting.awaited.difference_update(names)
                if not starting.awaited and not self._start.agents_end_with_it:
                    log.debug("what started the agents of %s is ended; they go on", list_names(starting.nodes))
                    process.kill_alone()

    def _was_useless(self, nodes: list[str], why: str) -> None:
        self._ended_for(nodes)
        why = f"{why}; {self._run_dir / LOG_NAME} says more"
        log.log(self._importance(nodes), "%s", why)
        if not self._met:
            self._useless += 1
            if self._useless == MOST_USELESS:
                self._observer.executor_failed(why)

    def _ended_for(self, nodes: list[str]) -> None:
        now = time.monotonic()
        for name in nodes:
            self._vigils[name].start_ended(now)

    def _importance(self, nodes: list[str]) -> int:
        """A node that is lost is tried again and again, for as long as the run lasts."""
        is_lost = all(self._vigils[name].standing is Standing.LOST for name in nodes)
        return logging.DEBUG if is_lost else logging.INFO

    def _give_up_start(self, name: str) -> None:
        for process, starting in self._starters.items():
            if starting.nodes == [name]:
                process.kill()

    # -- gathering ------------------------------------------------------------------------------------------------

    def _gather(self, now: float) -> None:
        if not self._gathering or self._ending:
            return
        missing = [name for name, vigil in self._vigils.items() if vigil.standing is not Standing.READY]
        ready = len(self._vigils) - len(missing)
        wanted = max(math.ceil(self._threshold * len(self._vigils)), 1)
        enough = ready >= wanted and self._settled(now)
        if enough or all(self._vigils[name].standing is Standing.LOST for name in missing):
            self._gathering = False
            if ready:
                self._observer.hosts_gathered(self._gathering_notices(missing))
            else:
                self._observer.executor_failed(
                    f"no agent has connected within {now - self._began:.0f} s; {self._run_dir / LOG_NAME} says more"
                )

    def _gathering_notices(self, missing: list[str]) -> list[str]:
        notices = self._layouts.notices()
        if missing:
            sentence = f"no agent has connected from {list_names(missing)} so far; jobs are started on the other nodes"
            notices = [sentence, *notices]
        return notices

    def _settled(self, now: float) -> bool:
        """A command for many nodes that fails on one of them ends the agents on all of them, with their jobs."""
        together = [starting.nodes for starting in self._starters.values() if len(starting.nodes) > 1]
        waiting = any(self._vigils[name].standing is Standing.EXPECTED for nodes in together for name in nodes)
        return not waiting or now - self._began >= SETTLING

    # -- the end --------------------------------------------------------------------------------------------------

    def _still_expected(self, deadline: float) -> bool:
        """Agents that are there have until the deadline. Those that are away may have left jobs behind: they are
        started again, or lost in the end."""
        standings = [vigil.standing for vigil in self._vigils.values()]
        return Standing.AWAY in standings or (Standing.READY in standings and time.monotonic() < deadline)

    async def _end_starters(self) -> None:
        """They end with the last of their agents; those of nodes that cannot be reached do not."""
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
