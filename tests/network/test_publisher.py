"""The publisher without subscribers, and without summaries."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.interfaces import publisher as publishing
from qcg.pilotjob.interfaces.publisher import Publisher
from qcg.pilotjob.manager.observers import Observers
from qcg.pilotjob.report.run_summary import RunSummary
from tests.report.test_metrics_text import summary


class Untold(Job):
    """A transition whose job name must not be read."""

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


def test_summaries_are_published_after_some_could_not_be_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(publishing, "SUMMARY_PAUSE", 0.0)
    made: list[RunSummary | Exception] = [RuntimeError("a defect"), RuntimeError("a defect"), summary()]

    async def make() -> RunSummary:
        found = made.pop(0) if len(made) > 1 else made[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def publish() -> list[bytes]:
        sent: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        port = SimpleNamespace(address="here", send=sent.set_result, close=lambda: None)
        publisher = Publisher(SimpleNamespace(publisher=lambda *rest: port), None, "")  # type: ignore[arg-type]
        manager: Any = SimpleNamespace(
            run_id="x", engine=SimpleNamespace(observers=Observers()), summaries=SimpleNamespace(make=make)
        )
        publisher.follow(manager)
        publisher._subscriptions([[b"\x01SUM"]])
        try:
            return await asyncio.wait_for(sent, 60)
        finally:
            publisher.close()

    assert asyncio.run(publish())[0].startswith(b"SUM {")
    assert caplog.text.count("the summary of the run cannot be published") == 1
