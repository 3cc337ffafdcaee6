"""Keeps the contact file fresh, without waiting for its file system."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from qcg.pilotjob.executors.hang_safe import call_in_thread

log = logging.getLogger(__name__)


class ContactKeeper:
    """Touches the contact file, by which agents and clients on other machines know that this manager lives."""

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh
        self._under_way: asyncio.Future[None] | None = None
        self.refreshed_at = 0.0
        """When the file was refreshed last, in monotonic seconds; 0 before the first time."""

    def touch(self) -> None:
        """Refresh the file, unless the last refresh is still under way."""
        if self._under_way is None or self._under_way.done():
            self._under_way = call_in_thread(self._refresh, "contact file")
            self._under_way.add_done_callback(self._touched)

    def _touched(self, done: asyncio.Future[None]) -> None:
        if done.cancelled():
            return
        if (error := done.exception()) is None:
            self.refreshed_at = time.monotonic()
        else:
            log.error(
                "the contact file cannot be refreshed: %s; agents that are cut off may take this manager for dead",
                error,
            )
