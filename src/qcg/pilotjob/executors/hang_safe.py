"""Calls that may hang, such as those to a shared file system, and tasks that no code awaits."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def call_in_thread(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run a call in a thread of its own, which does not keep this process alive.

    The future gets the result or the exception of the call; OSError where no thread can be started."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not future.done():
            outcome()

    def work() -> None:
        outcome: Callable[[], None]
        try:
            outcome = partial(future.set_result, call())
        except Exception as error:  # noqa: BLE001  # the caller gets every exception
            outcome = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(settle, outcome)

    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        future.set_exception(OSError(errno.EAGAIN, f"no thread can be started ({error})"))
    return future


def reraise_task_error(task: asyncio.Future[None]) -> None:
    """A callback for tasks that no code awaits: raises their exception, so that the event loop reports it."""
    if not task.cancelled():
        task.result()
