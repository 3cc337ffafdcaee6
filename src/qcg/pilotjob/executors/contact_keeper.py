"""Keeps the contact file fresh, without waiting for its file system."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.executors.hang_safe import aside

log = logging.getLogger(__name__)


class KeptFresh:
    def __init__(self, refresh: Callable[[], None], executor: AgentExecutor) -> None:
        """`executor` is to know when it was done last."""
        self._refresh = refresh
        self._executor = executor
        self._under_way: asyncio.Future[None] | None = None

    def touch(self) -> None:
        """Unless the last time still lasts."""
        if self._under_way is None or self._under_way.done():
            self._under_way = aside(self._refresh, "contact file")
            self._under_way.add_done_callback(self._touched)

    def _touched(self, done: asyncio.Future[None]) -> None:
        if done.cancelled():
            return
        if (error := done.exception()) is None:
            self._executor.touched = time.monotonic()
        else:
            log.error("the contact file cannot be kept fresh: %s; agents that lose this manager miss it", error)
