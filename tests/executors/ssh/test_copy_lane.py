"""Batches of copies for one host."""

from __future__ import annotations

import asyncio
from typing import Any

from qcg.pilotjob.executors.ssh import copy_lane
from qcg.pilotjob.executors.ssh.commands import Control
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.copy_lane import MOST_IN_BATCH, CopyLane
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.job_files import ConnectedHost


def a_host(address: str) -> ConnectedHost:
    return ConnectedHost(HostConfig("wizard", (address,)), address, Control("no"), "r", "/r", shared=False)


class Copies:
    """Copies that end when the test requests it."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, list[int]]] = []
        self._ends: list[asyncio.Future[None]] = []
        self.given_up: list[int] = []
        self.lane: CopyLane[int] = CopyLane(self._copy, self._give_up)

    async def _copy(self, host: ConnectedHost, batch: list[int]) -> None:
        self.begun.append((host.address, batch))
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends.append(end)
        await end

    def _give_up(self, host: ConnectedHost, batch: list[int], why: str) -> None:
        self.given_up += batch

    async def end(self, problem: Exception | None = None) -> None:
        """End the copy that began last."""
        if problem is None:
            self._ends[-1].set_result(None)
        else:
            self._ends[-1].set_exception(problem)
        await turn()


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def in_loop(scenario: Any) -> None:
    async def main() -> None:
        copies = Copies()
        await scenario(copies)
        copies.lane.close()

    asyncio.run(main())


def test_jobs_that_arrive_during_a_copy_form_the_next_batch():
    async def scenario(copies: Copies) -> None:
        copies.lane.connected(a_host("a"))
        copies.lane.add([1])
        await turn()
        copies.lane.add([2])
        copies.lane.add([3])
        await turn()
        assert copies.begun == [("a", [1])]
        await copies.end()
        assert copies.begun[1:] == [("a", [2, 3])]
        await copies.end()
        assert copies.lane.is_empty

    in_loop(scenario)


def test_a_batch_has_a_largest_size():
    async def scenario(copies: Copies) -> None:
        copies.lane.connected(a_host("a"))
        copies.lane.add(range(MOST_IN_BATCH + 1))
        await turn()
        await copies.end()
        assert [len(batch) for _, batch in copies.begun] == [MOST_IN_BATCH, 1]

    in_loop(scenario)


def test_a_copy_of_a_lost_connection_is_repeated_at_once_over_the_next_one():
    async def scenario(copies: Copies) -> None:
        copies.lane.connected(a_host("a"))
        copies.lane.add([1])
        await turn()
        copies.lane.disconnected()
        copies.lane.connected(a_host("b"))
        await turn()
        assert copies.begun == [("a", [1])]
        await copies.end(ConnectionProblem("broken"))
        assert copies.begun[1:] == [("b", [1])]
        await copies.end()
        assert copies.lane.is_empty
        assert copies.given_up == []

    in_loop(scenario)


def test_a_failed_copy_without_a_connection_waits_for_the_next_one():
    async def scenario(copies: Copies) -> None:
        copies.lane.connected(a_host("a"))
        copies.lane.add([1])
        await turn()
        copies.lane.disconnected()
        await copies.end(ConnectionProblem("broken"))
        assert not copies.lane.is_empty
        copies.lane.connected(a_host("b"))
        await turn()
        assert copies.begun[1:] == [("b", [1])]

    in_loop(scenario)


def test_a_cleared_lane_takes_new_jobs_at_once():
    async def scenario(copies: Copies) -> None:
        copies.lane.connected(a_host("a"))
        copies.lane.add([1, 2])
        await turn()
        copies.lane.clear()
        copies.lane.add([3])
        await turn()
        assert copies.begun[1:] == [("a", [3])]
        await copies.end()
        assert copies.lane.is_empty

    in_loop(scenario)


def test_an_error_of_this_machine_is_repeated_and_loses_no_job(monkeypatch):
    monkeypatch.setattr(copy_lane, "FIRST_PAUSE", 0.0)

    async def scenario(copies: Copies) -> None:
        copies.lane.connected(a_host("a"))
        copies.lane.add([1])
        await turn()
        for _ in range(copy_lane.MOST_FAILURES):
            assert copies.given_up == []
            await copies.end(OSError("no space left"))
        assert copies.given_up == [1]
        assert copies.lane.is_empty

    in_loop(scenario)
