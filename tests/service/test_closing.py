"""What becomes of jobs whose agents take long to end: they are taken back where the allocation ends them."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from qcg.pilotjob import closing
from qcg.pilotjob.closing import Closing
from qcg.pilotjob.cluster.errors import AllocationOver
from qcg.pilotjob.cluster.slurm import Allocation
from qcg.pilotjob.core.events import NodesLost
from qcg.pilotjob.options import Options


class SlowAgents:
    """They end their jobs, but not at once."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.may_end = asyncio.Event()

    async def end(self, grace: float) -> None:
        await self.may_end.wait()
        self._engine.state.runs = {}


def an_engine() -> Any:
    engine = SimpleNamespace(
        executor=SimpleNamespace(exit_reason="", flush=lambda: None),
        state=SimpleNamespace(runs={"1.0": None}, unfinished=1, deadline=None, nodes=[SimpleNamespace(name="n1")]),
        try_to_commit=lambda: None,
        events=[],
    )
    engine.dispatch = engine.events.append
    return engine


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "ENDING", 0.01)
    monkeypatch.setattr(closing, "KILL_GRACE", 0.01)


def an_allocation(end: float) -> Allocation:
    return Allocation("7", [], {}, {}, end)


async def close(options: Options, allocation: Allocation | None, patience: float) -> tuple[bool, Any]:
    """Whether it waits so long for agents that are slow; and the engine, in the end."""
    engine = an_engine()
    agents = SlowAgents(engine)
    carrying_out = asyncio.ensure_future(
        Closing(SimpleNamespace(engine=engine), options, allocation).carry_out(agents)  # type: ignore[arg-type]
    )
    await asyncio.wait({carrying_out}, timeout=patience)
    waits = not carrying_out.done()
    agents.may_end.set()
    await carrying_out
    return waits, engine


def lost(engine: Any) -> list[NodesLost]:
    return [event for event in engine.events if isinstance(event, NodesLost)]


def test_at_the_end_of_a_limit_of_its_own_agents_have_really_ended_what_runs():
    waits, engine = asyncio.run(close(Options(time_limit=10.0), an_allocation(time.time() + 3600), patience=1))
    assert waits
    assert not lost(engine)


def test_at_the_end_of_an_allocation_what_runs_ends_with_it():
    waits, engine = asyncio.run(close(Options(), an_allocation(time.time() + 10), patience=30))
    assert not waits
    assert len(lost(engine)) == 1


def test_a_manager_whose_allocation_is_over_ends_too(monkeypatch: pytest.MonkeyPatch):
    def find_end(environ: object, patience: float) -> None:
        raise AllocationOver("job 7 does not run: it is CANCELLED")

    monkeypatch.setattr(closing, "find_end", find_end)
    monkeypatch.setattr(closing, "READ_AGAIN", 0.0)  # the longest pause

    async def watch() -> str:
        engine = an_engine()
        pilot = SimpleNamespace(engine=engine, end_when_done=asyncio.Event())
        manager = Closing(pilot, Options(), an_allocation(time.time() + 3600))  # type: ignore[arg-type]
        watching = asyncio.ensure_future(manager.watch())
        await asyncio.wait_for(manager.over.wait(), 60)
        await watching
        return manager.why

    assert asyncio.run(watch()) == "job 7 does not run: it is CANCELLED"


def test_the_end_of_its_time_is_not_missed_by_a_manager_without_jobs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(closing, "SELDOM", 1000.0)

    async def watch() -> float:
        engine = an_engine()
        engine.state.unfinished = 0
        engine.notice = lambda text: None
        pilot = SimpleNamespace(engine=engine, end_when_done=asyncio.Event())
        began = time.monotonic()
        manager = Closing(pilot, Options(time_limit=3.0, grace=0.4), None)  # type: ignore[arg-type]
        manager.all_read = True
        watching = asyncio.ensure_future(manager.watch())
        await asyncio.wait_for(manager.over.wait(), 100)
        watching.cancel()
        return time.monotonic() - began

    assert asyncio.run(watch()) > 2.5


def test_jobs_of_a_file_that_are_read_after_the_first_look_do_not_wait_for_a_seldom_one(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(closing, "SELDOM", 1000.0)
    monkeypatch.setattr(closing, "why_over", lambda state, now: "not enough time is left")

    async def watch() -> str:
        engine = an_engine()
        engine.state.unfinished = 0
        engine.gathering = False
        pilot = SimpleNamespace(engine=engine, end_when_done=asyncio.Event())
        pilot.end_when_done.set()
        manager = Closing(pilot, Options(), None)  # type: ignore[arg-type]
        watching = asyncio.ensure_future(manager.watch())
        await asyncio.sleep(0)  # its first look
        engine.state.unfinished = 1
        manager.all_read = True
        await asyncio.wait_for(manager.over.wait(), 60)
        await watching
        return manager.why

    assert asyncio.run(watch()) == "not enough time is left"
