"""The deadline of a manager: it uses a monotonic clock, and follows the end of the allocation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import Allocation, BatchSystem
from qcg.pilotjob.cluster.errors import AllocationOver, ClusterError
from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.common.clock import Clock
from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.events import Deadline, NodesLost, ShutDown
from qcg.pilotjob.core.shutdown import KILL_GRACE, Cause
from qcg.pilotjob.manager import deadline, shutdown
from qcg.pilotjob.manager.deadline import ManagerDeadline
from qcg.pilotjob.manager.shutdown import ShutdownSequence
from qcg.pilotjob.manager.shutdown_request import ShutdownRequest

HOUR = 3600.0
NOON = 1_800_000_000.0
"""A time of day."""


class MovedClock(Clock):
    """A clock whose time passes when the test requests it, and whose time of day can be set."""

    def __init__(self) -> None:
        self._steady = 1000.0
        self._set_by = 0.0

    def wall(self) -> float:
        return NOON + self._steady - 1000.0 + self._set_by

    def steady(self) -> float:
        return self._steady

    def passes(self, seconds: float) -> None:
        self._steady += seconds

    def is_set(self, by: float) -> None:
        self._set_by += by


class SlowExecutor:
    """An executor whose hosts end their jobs only when the test allows it."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self.may_end = asyncio.Event()

    def flush(self) -> None:
        pass

    async def shut_down(self, grace: float, reason: str) -> None:
        await self.may_end.wait()
        self._state.attempts = {}


def an_engine() -> Any:
    async def store() -> None:
        pass

    state = SimpleNamespace(
        attempts={"1.0": None},
        unfinished=1,
        executing=1,
        deadline=None,
        pool=SimpleNamespace(local=SimpleNamespace(nodes=[SimpleNamespace(spec=SimpleNamespace(name="n1"))])),
    )
    engine = SimpleNamespace(
        executor=SlowExecutor(state),
        state=state,
        gathering=False,
        commits=SimpleNamespace(try_to_commit=lambda: None, store=store),
        notice=lambda text: None,
        events=[],
    )

    def dispatch(event: Any) -> None:
        engine.events.append(event)
        if isinstance(event, Deadline):
            state.deadline = event.at

    engine.dispatch = dispatch
    return engine


def a_pilot() -> Any:
    return SimpleNamespace(engine=an_engine(), end_when_done=asyncio.Event(), shutdown=ShutdownRequest())


def an_allocation(seconds: float) -> Allocation:
    """An allocation that ends in this number of seconds."""
    return Allocation(AllocationRef("7"), [], {}, NOON + seconds)


def within(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(scenario(), 100)

    asyncio.run(run())


@pytest.mark.parametrize("jump", [5 * HOUR, -5 * HOUR])
def test_setting_the_clock_does_not_change_the_end_of_a_run(jump: float):
    async def scenario() -> None:
        pilot, clock = a_pilot(), MovedClock()
        manager = ManagerDeadline(pilot, Options(time_limit=HOUR, grace=60.0), None, clock)
        await manager._check()
        assert pilot.engine.state.deadline == NOON + HOUR - 60
        clock.is_set(by=jump)
        clock.passes(1.0)
        await manager._check()
        assert not pilot.shutdown.is_requested
        left = pilot.engine.state.deadline - clock.wall()
        assert left == HOUR - 61, "jobs are started as long as they would end in time"
        clock.passes(HOUR - 62)
        await manager._check()
        assert not pilot.shutdown.is_requested
        clock.passes(55.0)
        await manager._check()
        assert (pilot.shutdown.cause, pilot.shutdown.reason) == (Cause.TIME, "the time of this manager is over")

    within(scenario)


@pytest.mark.parametrize(("limit", "seconds"), [(HOUR, 600.0), (600.0, HOUR), (None, 600.0)])
def test_the_earlier_of_time_limit_and_allocation_end_counts(
    monkeypatch: pytest.MonkeyPatch, limit: float | None, seconds: float
):
    monkeypatch.setattr(batch_system(), "end_time", lambda environ, patience: NOON + seconds)

    async def scenario() -> None:
        pilot, clock = a_pilot(), MovedClock()
        manager = ManagerDeadline(pilot, Options(time_limit=limit, grace=60.0), an_allocation(seconds), clock)
        clock.is_set(by=5 * HOUR)
        clock.passes(580.0)
        await manager._check()
        assert not pilot.shutdown.is_requested
        clock.passes(6.0)
        await manager._check()
        assert pilot.shutdown.cause is Cause.TIME
        assert manager.is_end_of_allocation == (seconds < (limit or HOUR))

    within(scenario)


def test_a_raised_limit_of_the_allocation_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batch_system(), "end_time", lambda environ, patience: NOON + HOUR)

    async def scenario() -> None:
        pilot, clock = a_pilot(), MovedClock()
        manager = ManagerDeadline(pilot, Options(grace=60.0), an_allocation(600.0), clock)
        clock.passes(590.0)
        await manager._check()
        assert not pilot.shutdown.is_requested
        assert pilot.engine.state.deadline == pytest.approx(NOON + HOUR - 60)

    within(scenario)


def test_an_end_that_cannot_be_queried_stays_as_it_is_known(monkeypatch: pytest.MonkeyPatch):
    def end_time(environ: object, patience: float) -> None:
        raise ClusterError("the batch system does not tell")

    monkeypatch.setattr(batch_system(), "end_time", end_time)

    async def scenario() -> None:
        pilot, clock = a_pilot(), MovedClock()
        manager = ManagerDeadline(pilot, Options(grace=60.0), an_allocation(HOUR), clock)
        clock.passes(600.0)
        await manager._check()
        assert pilot.engine.state.deadline == pytest.approx(NOON + HOUR - 60)

    within(scenario)


def test_a_batch_system_must_say_when_its_allocations_end():
    assert "end_time" in BatchSystem.__abstractmethods__, "a default would replace the end that is known"


def test_small_differences_between_clocks_do_not_change_the_deadline():
    async def scenario() -> None:
        pilot, clock = a_pilot(), MovedClock()
        manager = ManagerDeadline(pilot, Options(time_limit=HOUR), None, clock)
        for _ in range(5):
            clock.is_set(by=0.1)
            clock.passes(1.0)
            await manager._check()
        assert len(pilot.engine.events) == 1

    within(scenario)


def test_a_manager_ends_when_its_allocation_is_over(monkeypatch: pytest.MonkeyPatch):
    def end_time(environ: object, patience: float) -> None:
        raise AllocationOver("job 7 does not run: it is CANCELLED")

    monkeypatch.setattr(batch_system(), "end_time", end_time)

    async def scenario() -> None:
        pilot, clock = a_pilot(), MovedClock()
        manager = ManagerDeadline(pilot, Options(), an_allocation(HOUR), clock)
        clock.passes(deadline.READ_AGAIN)
        await manager.watch()
        assert pilot.shutdown.reason == "job 7 does not run: it is CANCELLED"
        assert manager.kill_grace == deadline.SHORT_KILL_GRACE

    within(scenario)


def test_a_manager_without_jobs_notices_the_end_of_its_time():
    """The manager checks seldom, but often enough for the grace period."""

    async def scenario() -> None:
        pilot, clock = a_pilot(), MovedClock()
        pilot.engine.state.unfinished = 0
        manager = ManagerDeadline(pilot, Options(time_limit=30.0, grace=4.0), None, clock)
        manager.requests_read()
        while not pilot.shutdown.is_requested:
            await manager._check()
            clock.passes(manager._until_next_check())
        assert 28.0 <= clock.steady() - 1000.0 < 30.0

    within(scenario)


def test_jobs_read_after_the_first_check_are_checked_soon(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(deadline, "why_over", lambda state, now: "not enough time is left")

    async def scenario() -> None:
        pilot = a_pilot()
        pilot.engine.state.unfinished = 0
        pilot.end_when_done.set()
        manager = ManagerDeadline(pilot, Options(), None, MovedClock())
        assert manager._until_next_check() == deadline.TICK, "more requests may come from the file"
        pilot.engine.state.unfinished = 1
        manager.requests_read()
        assert manager._until_next_check() == deadline.TICK
        await manager._check()
        assert pilot.shutdown.reason == "not enough time is left"

    within(scenario)


# -- the shutdown that follows ----------------------------------------------------------------------------------------


async def shut_down(
    monkeypatch: pytest.MonkeyPatch, options: Options, allocation: Allocation | None, patience: float
) -> tuple[bool, Any]:
    """Whether the manager waits this long for slow agents; and the engine at the end."""
    monkeypatch.setattr(shutdown, "EXIT_TIMEOUT", 0.01)
    monkeypatch.setattr(deadline, "KILL_GRACE", 0.01)
    pilot, clock = a_pilot(), MovedClock()
    engine = pilot.engine
    manager = ManagerDeadline(pilot, options, allocation, clock)
    pilot.shutdown.request(Cause.TIME, "the time of this manager is over")
    carrying_out = asyncio.ensure_future(ShutdownSequence(engine, pilot.shutdown, manager).carry_out())
    await asyncio.wait({carrying_out}, timeout=patience)
    waits = not carrying_out.done()
    engine.executor.may_end.set()
    await carrying_out
    return waits, engine


def lost(engine: Any) -> list[NodesLost]:
    return [event for event in engine.events if isinstance(event, NodesLost)]


def test_at_the_time_limit_the_manager_waits_until_agents_have_ended_their_jobs(monkeypatch: pytest.MonkeyPatch):
    waits, engine = asyncio.run(shut_down(monkeypatch, Options(time_limit=10.0), an_allocation(HOUR), patience=1))
    assert waits
    assert not lost(engine)


def test_at_the_end_of_an_allocation_running_jobs_end_with_it(monkeypatch: pytest.MonkeyPatch):
    waits, engine = asyncio.run(shut_down(monkeypatch, Options(), an_allocation(10.0), patience=30))
    assert not waits
    assert len(lost(engine)) == 1


def test_an_end_that_no_agent_has_reported_is_left_to_the_next_manager(monkeypatch: pytest.MonkeyPatch):
    """The ledger of a dead agent may have the end: a job that has succeeded must not run again."""

    async def die(self: SlowExecutor, grace: float, reason: str) -> None:
        await self.may_end.wait()

    monkeypatch.setattr(SlowExecutor, "shut_down", die)
    _, engine = asyncio.run(shut_down(monkeypatch, Options(time_limit=10.0), None, patience=0))
    assert not lost(engine)
    assert engine.state.attempts


def test_nothing_is_started_during_a_shutdown(monkeypatch: pytest.MonkeyPatch):
    _, engine = asyncio.run(shut_down(monkeypatch, Options(), None, patience=0))
    deadline, shut_down_event, *_ = engine.events
    assert deadline == Deadline(0.0)
    assert isinstance(shut_down_event, ShutDown)


def test_the_grace_period_of_jobs_fits_into_the_remaining_time():
    async def scenario() -> None:
        for grace, expected in ((60.0, KILL_GRACE), (10.0, 2.5), (0.0, 0.0)):
            manager = ManagerDeadline(a_pilot(), Options(time_limit=HOUR, grace=grace), None, MovedClock())
            assert manager.kill_grace == expected

    within(scenario)
