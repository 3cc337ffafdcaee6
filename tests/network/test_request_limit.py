"""A limited number of requests is handled at once; the others wait in the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.interfaces import network
from qcg.pilotjob.interfaces.network import LIMITS, MOST_IN_PROGRESS, NetworkInterface
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.observers import Observers
from qcg.pilotjob.wire.hub import Hub
from qcg.pilotjob.wire.routing import LOOPBACK
from tests.support.serving import PATIENCE, Bare

REQUESTS = 2000


class Handlers:
    """Replaces all handlers: a request is answered when the test releases it."""

    def __init__(self) -> None:
        self._let_go = asyncio.Semaphore(0)
        self._changed = asyncio.Event()
        self.under_way = 0
        self.most = 0
        self.answered = 0

    async def answer(self, pilot: Any, body: bytes) -> Answer:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self._changed.set()
        await self._let_go.acquire()
        self.under_way -= 1
        self.answered += 1
        self._changed.set()
        return ok()

    async def let_go(self, count: int) -> None:
        """Release requests one after the other: each reply may make the manager read further requests."""
        for answered in range(self.answered + 1, self.answered + 1 + count):
            self._let_go.release()
            await self.until(lambda answered=answered: self.answered >= answered)  # type: ignore[misc]

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), PATIENCE)


def test_no_request_is_read_while_the_maximum_is_being_handled(monkeypatch: pytest.MonkeyPatch):
    async def scenario() -> None:
        handlers = Handlers()
        monkeypatch.setattr(network, "answer", handlers.answer)
        hub = Hub()
        try:
            interface = NetworkInterface(hub, Options(insecure_net=True), LOOPBACK)
            engine = SimpleNamespace(observers=Observers())
            interface.serve(SimpleNamespace(run_id="x", engine=engine))  # type: ignore[arg-type]
            with Bare(interface.contact.address, kind=zmq.DEALER) as client:
                for _ in range(REQUESTS):
                    client.send(b"", b"{}")
                await handlers.until(lambda: handlers.under_way >= MOST_IN_PROGRESS)
                await handlers.let_go(REQUESTS)
                assert handlers.under_way == 0
                assert handlers.most < MOST_IN_PROGRESS + LIMITS.turn
            await interface.close()
        finally:
            hub.close()

    asyncio.run(scenario())
