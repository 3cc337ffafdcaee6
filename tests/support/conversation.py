"""Talks to a running service: sends requests as JSON text, returns replies, and waits for job states."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.interfaces.dispatch import answer
from qcg.pilotjob.interfaces.factory import InterfaceFactory
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.observers import RunObserver
from qcg.pilotjob.manager.prepare import PreparedRun
from qcg.pilotjob.manager.run_result import RunResult
from qcg.pilotjob.manager.service import Service

PATIENCE = 60.0


class Conversation(RunObserver):
    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self._reached: dict[tuple[str, str], asyncio.Event] = {}
        manager.engine.observers.subscribe(self)

    def changed(self, transition: Transition) -> None:
        name = name_of(transition.job, transition.position)
        self._event(name, transition.state.name).set()

    def _event(self, name: str, state: str) -> asyncio.Event:
        return self._reached.setdefault((name, state), asyncio.Event())

    async def until(self, name: str, state: str) -> None:
        """Wait until a job or an iteration has reached this state."""
        await asyncio.wait_for(self._event(name, state).wait(), PATIENCE)

    def forget(self, name: str) -> None:
        """Forget a job: its name will be reused."""
        self._reached = {key: event for key, event in self._reached.items() if key[0] != name}

    async def text(self, raw: bytes) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(json.dumps((await answer(self.manager, raw)).to_dict()))
        return reply

    async def ask(self, request: str, **more: Any) -> Any:
        """The whole reply, as a client would receive it."""
        return await self.text(json.dumps({"request": request, **more}).encode())

    async def data(self, request: str, **more: Any) -> Any:
        """The `data` of a request that succeeds."""
        reply = await self.ask(request, **more)
        assert reply["code"] == 0, reply
        return reply["data"]

    async def info(self, name: str, **more: Any) -> Any:
        """The jobInfo data of one job."""
        entry = (await self.data("jobInfo", jobNames=[name], **more))["jobs"][name]
        assert entry["status"] == 0, entry
        return entry["data"]


class _Open(Service):
    """A service that runs until a shutdown request, as for a client."""

    async def _wait_for_end(self, manager: Manager, prepared: PreparedRun) -> None:
        await manager.shutdown.wait()


def talk(
    wd: Path, scenario: Callable[[Conversation], Awaitable[None]], nodes: str | None = "4", **more: Any
) -> RunResult:
    """Run a service in this process and a scenario against it; returns the result of the service."""
    return asyncio.run(_talk(Options(wd=str(wd), nodes=nodes, **more), scenario))


async def _talk(options: Options, scenario: Callable[[Conversation], Awaitable[None]]) -> RunResult:
    talking: list[asyncio.Future[None]] = []

    async def converse(manager: Manager) -> None:
        try:
            await scenario(Conversation(manager))
        finally:
            manager.shutdown.request(Cause.FINISH_AND_CANCEL, "the scenario is over")

    def begin(manager: Manager) -> None:
        talking.append(asyncio.ensure_future(converse(manager)))

    service = _Open(options, interfaces=InterfaceFactory(), on_ready=begin)
    ending = await service.run()
    await asyncio.gather(*talking)
    return ending
