"""Calls that may hang, such as those that touch a shared file system: nobody else waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def aside(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Its result, in time. In a thread of its own, which does not keep this process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not future.done():
            outcome()

    def work() -> None:
        outcome: Callable[[], None]
        try:
            outcome = partial(future.set_result, call())
        except OSError as error:
            outcome = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future
