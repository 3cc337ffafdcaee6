"""The publisher without subscribers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.interfaces.publisher import Publisher


class Untold(Job):
    """Its name is part of every event."""

    @property
    def name(self) -> str:
        raise AssertionError("an event was put together")

    @name.setter
    def name(self, value: str) -> None: ...


@pytest.mark.parametrize(("topic", "position"), [(b"JFI", 0), (b"IST", -1)])
def test_no_event_is_made_for_topics_without_subscribers(topic: bytes, position: int):
    async def change() -> list[Any]:
        sent: list[Any] = []
        port = SimpleNamespace(address="here", send=sent.append)
        publisher = Publisher(SimpleNamespace(publisher=lambda *rest: port), None, "")  # type: ignore[arg-type]
        publisher._subscriptions([[b"\x01" + topic]])
        job = Untold(1, "it", b"", 0.0)
        job.iterations = Iterations(range(1))
        publisher._publish_change(Transition(job, position, State.SUCCEED, 1.0))
        return sent

    assert asyncio.run(change()) == []
