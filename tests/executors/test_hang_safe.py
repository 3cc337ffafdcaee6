"""Calls in threads of their own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from qcg.pilotjob.executors.hang_safe import call_in_thread


@pytest.mark.parametrize("error", [PermissionError("not yours"), ValueError("no number"), MemoryError()])
def test_every_exception_of_a_call_is_passed_on(error: Exception):
    def call() -> None:
        raise error

    async def test() -> None:
        with pytest.raises(type(error)) as raised:
            await asyncio.wait_for(call_in_thread(call, "test"), 30)
        assert raised.value is error

    asyncio.run(test())


def test_a_thread_that_cannot_be_started_is_an_error_of_the_call(monkeypatch: pytest.MonkeyPatch):
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def test() -> None:
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        future = call_in_thread(lambda: None, "test")
        with pytest.raises(OSError, match="no thread can be started"):
            await future

    asyncio.run(test())
