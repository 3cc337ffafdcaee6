"""A whole manager in one process, with simulated agents that answer at once: no sockets, everything else is real.

`measure` runs it in a separate process. Messages to agents are encoded and their replies decoded, as with sockets.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import subprocess
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import pilot, processes
from bench.finding import BenchError
from qcg.pilotjob.agent import protocol
from qcg.pilotjob.common.gc_tuning import collect_seldom
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.executors.agents import AgentExecutor, AgentHandle
from qcg.pilotjob.executors.base import ExecutorObserver
from qcg.pilotjob.executors.supervision import AgentSupervisor
from qcg.pilotjob.host.records import Ended, Launch
from qcg.pilotjob.interfaces.dispatch import answer
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.shutdown_request import ShutdownRequest
from qcg.pilotjob.report.writer import ReportWriter
from qcg.pilotjob.runs import rundir

ROOT = Path(__file__).parents[1]


class Unsupervised(AgentSupervisor):
    """For agents that are in this process, and never die."""

    def start(self) -> None:
        pass

    def hello(self, hello: protocol.Hello) -> None:
        pass

    def message_received(self, name: str) -> None:
        pass

    def ready(self, name: str) -> None:
        pass

    def bye(self, name: str) -> None:
        pass

    async def end(self, grace: float) -> None:
        pass

    def close(self) -> None:
        pass


class Answering(AgentExecutor):
    """An executor whose agents end all launches at once, or as many as `allowed`."""

    def __init__(self, observer: ExecutorObserver, agents: dict[str, list[str]]) -> None:
        super().__init__(observer, agents, {}, None, lambda executor: Unsupervised())
        self._loop = asyncio.get_running_loop()
        self._numbers = dict.fromkeys(agents, 0)
        self._waiting: deque[tuple[AgentHandle, list[Launch]]] = deque()
        self._due = False
        self.allowed = math.inf
        """Number of jobs that may still end."""
        self.at_rest = asyncio.Event()
        """Set when as many jobs have ended as are allowed."""

    def start(self) -> None:
        self._observer.scheduling_may_begin([])
        for agent in self.agents.values():
            agent.peer = agent.name.encode()
            self._by_peer[agent.peer] = agent
            agent.ready = True
            self._observer.host_ready(agent.name, agent.nodes, [])

    async def end_jobs(self, count: int) -> None:
        """Let `count` jobs end, including jobs that have not started yet."""
        self.allowed = count
        self.at_rest.clear()
        self._answer_soon()
        await self.at_rest.wait()

    def _send(self, agent: AgentHandle, message: protocol.FromManager) -> None:
        protocol.encode(message)
        if isinstance(message, protocol.Start):
            self._waiting.append((agent, message.launches))
            self._answer_soon()
        elif isinstance(message, protocol.Sweep):
            self._loop.call_soon(self._say, agent, protocol.Swept(message.ids))

    def _answer_soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._answer_all)

    def _answer_all(self) -> None:
        self._due = False
        while self._waiting and self.allowed:
            agent, launches = self._waiting.popleft()
            if len(launches) > self.allowed:
                self._waiting.appendleft((agent, launches[int(self.allowed) :]))
                launches = launches[: int(self.allowed)]
            self.allowed -= len(launches)
            self._answer(agent, launches)
        if not self.allowed:
            self.at_rest.set()

    def _answer(self, agent: AgentHandle, launches: list[Launch]) -> None:
        number, now = self._numbers[agent.name], time.time()
        records: list[protocol.WireRecord] = []
        for launch in launches:
            # Like an agent that reports start and end of a job in one record.
            number += 1
            records.append(protocol.EndedRecord(number, Ended(launch.id, now, 0, "exit", "", 1, now, launch.grant)))
        self._numbers[agent.name] = number
        self._say(agent, protocol.News(records))

    def _say(self, agent: AgentHandle, message: protocol.FromAgent) -> None:
        assert agent.peer is not None
        self._messages([[agent.peer, protocol.encode(message)]])


class Inside:
    """A manager without `manager/service.py` around it."""

    def __init__(self, directory: Path, nodes: int, cores: int, agents: int) -> None:
        run_dir = rundir.create(directory, None)
        self.journal = Journal.create(run_dir / FILE_NAME)
        specs = [NodeSpec(f"n{number}", tuple(range(cores))) for number in range(nodes)]
        report = ReportWriter(run_dir / "jobs.report", "text")
        site = Site(str(directory), "bench")
        names = [spec.name for spec in specs]
        shares = {f"agent{number}": names[number::agents] for number in range(agents)}

        def make_executor(observer: ExecutorObserver) -> Answering:
            self.executor = Answering(observer, shares)
            return self.executor

        self.engine = Engine(Core(specs), self.journal, report, site, make_executor, ShutdownRequest())
        self.manager = Manager(self.engine, "bench")
        self.engine.executor.start()

    async def submit(self, jobs: list[dict[str, Any]]) -> None:
        await self.submit_text(json.dumps({"request": "submit", "jobs": jobs}).encode())

    async def submit_text(self, request: bytes) -> None:
        reply = await answer(self.manager, request)
        if reply.code:
            raise BenchError(str(reply.message))

    async def all_done(self) -> None:
        await self.engine.all_done.wait()
        await self.engine.commits.store()


@dataclass(frozen=True)
class Cost:
    seconds: float
    cpu: float


async def _run(directory: Path, jobs: int, nodes: int, cores: int, agents: int, iterated: bool) -> Cost:
    inside = Inside(directory, nodes, cores, agents)
    make = pilot.iterated if iterated else pilot.separate
    request = json.dumps({"request": "submit", "jobs": make(jobs, "true")}).encode()
    collect_seldom()
    began, cpu = time.monotonic(), time.process_time()
    await inside.submit_text(request)
    await inside.all_done()
    cost = Cost(time.monotonic() - began, time.process_time() - cpu)
    await inside.engine.close()
    return cost


def measure(directory: Path, *, jobs: int, nodes: int, cores: int, agents: int = 1, iterated: bool = False) -> Cost:
    """Cost from the text of a submission until everything is on disk."""
    arguments = ["--jobs", str(jobs), "--nodes", str(nodes), "--cores", str(cores), "--agents", str(agents)]
    return Cost(**json.loads(output_of("inside", str(directory), *arguments, *(["--iterated"] if iterated else []))))


def output_of(module: str, *arguments: str) -> str:
    """The output of a module of this package in a separate process."""
    command = [*pilot.python("-m", f"bench.{module}"), *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    done = processes.run(command, processes.AT_ONCE, env=pilot.ENVIRONMENT, cwd=ROOT, **pipes)
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--cores", type=int, default=128)
    parser.add_argument("--agents", type=int, default=1)
    parser.add_argument("--iterated", action="store_true", help="one job with that many iterations")
    options = parser.parse_args()
    directory = Path(os.path.abspath(options.directory))
    cost = asyncio.run(
        _run(directory, options.jobs, options.nodes, options.cores, options.agents, iterated=options.iterated)
    )
    print(json.dumps(asdict(cost)))


if __name__ == "__main__":
    main()
