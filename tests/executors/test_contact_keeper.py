"""The contact file is touched, however long that takes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from qcg.pilotjob.executors.contact_keeper import ContactKeeper
from tests.support.waiting import wait_for


def test_a_hanging_file_system_blocks_nothing_and_gets_one_call():
    async def test() -> None:
        answers, calls = threading.Event(), list[int]()

        def refresh() -> None:
            calls.append(1)
            answers.wait(20)

        kept = ContactKeeper(refresh)
        for _ in range(3):
            kept.touch()
            await asyncio.sleep(0.01)
        assert kept.refreshed_at == 0.0
        answers.set()
        await asyncio.to_thread(wait_for, lambda: kept.refreshed_at)
        assert calls == [1]
        kept.touch()
        await asyncio.to_thread(wait_for, lambda: len(calls) == 2)

    asyncio.run(test())


def test_a_failed_refresh_is_logged_and_does_not_count(caplog: pytest.LogCaptureFixture):
    async def test() -> None:
        def refresh() -> None:
            raise PermissionError("not yours")

        kept = ContactKeeper(refresh)
        kept.touch()
        await asyncio.to_thread(wait_for, lambda: "not yours" in caplog.text)
        assert kept.refreshed_at == 0.0

    asyncio.run(test())
