"""The contact file is touched regularly, even when a touch takes long."""

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


@pytest.mark.parametrize("error", [PermissionError("not yours"), ValueError("not yours")])
def test_a_failed_refresh_is_logged_and_does_not_count(caplog: pytest.LogCaptureFixture, error: Exception):
    async def test() -> None:
        def refresh() -> None:
            raise error

        kept = ContactKeeper(refresh)
        kept.touch()
        await asyncio.to_thread(wait_for, lambda: "not yours" in caplog.text)
        assert kept.refreshed_at == 0.0

    asyncio.run(test())


def test_a_refresh_without_a_thread_is_logged_and_the_next_one_is_tried(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    async def test() -> None:
        def no_thread(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        kept = ContactKeeper(lambda: None)
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", no_thread)
            kept.touch()
        await asyncio.sleep(0)
        assert "no thread can be started" in caplog.text
        assert kept.refreshed_at == 0.0
        kept.touch()
        await asyncio.to_thread(wait_for, lambda: kept.refreshed_at)

    asyncio.run(test())
