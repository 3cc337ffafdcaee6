"""When an agent is given up, and when it is only the manager that has no time."""

from __future__ import annotations

import asyncio
import time

import pytest

from qcg.pilotjob.executors import local


def stand_still() -> None:
    """What a large submission does to the loop."""
    time.sleep(0.5)


def test_time_in_which_the_manager_was_busy_is_not_held_against_an_agent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "SECOND", 0.05)

    async def scenario() -> bool:
        connected = False
        waiting = asyncio.ensure_future(local._happens(lambda: connected, 3))
        await asyncio.sleep(0)
        stand_still()  # for much longer than the agent has
        await asyncio.sleep(0)
        connected = True
        return await waiting

    assert asyncio.run(scenario())


def test_an_agent_that_does_not_come_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "SECOND", 0.01)
    assert not asyncio.run(local._happens(lambda: False, 3))
