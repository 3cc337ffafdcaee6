"""The last lines of jobs' output, from file systems that may hang."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from qcg.pilotjob.executors.hang_safe import call_in_thread
from qcg.pilotjob.report.tail import SOURCES, end_of_output

PATIENCE = 2.0
"""Seconds to wait for a file system. Each read that hangs halves this for the next one."""
MOST_HUNG = 8
"""Reads that may hang at the same time; further ones are not begun."""

Tail = tuple[str, list[str]]
"""The path of a file, or the name of a stream, and its last lines."""
_Key = frozenset[tuple[str, str]]


class OutputTails:
    """Reads the last lines of output in threads. A read that hangs holds up nobody, and is not begun a second time."""

    def __init__(self) -> None:
        self._under_way: dict[_Key, asyncio.Future[Tail]] = {}
        self._hung: set[asyncio.Future[Tail]] = set()
        """Reads that took longer than they were waited for."""

    async def read(self, streams: Mapping[str, str]) -> Tail | None:
        """The result of `end_of_output`; None where it cannot be read in time."""
        sources = {name: streams[name] for name in SOURCES if name in streams}
        if not sources:
            return "", []
        key = frozenset(sources.items())
        reading = self._under_way.get(key)
        if reading is None:
            if len(self._hung) >= MOST_HUNG:
                return None
            reading = self._under_way[key] = call_in_thread(partial(end_of_output, sources), "last lines")
            reading.add_done_callback(partial(self._done, key))
        if reading not in self._hung:
            await asyncio.wait({reading}, timeout=PATIENCE / 2 ** len(self._hung))
        if not reading.done():
            self._hung.add(reading)
            return None
        try:
            return reading.result()
        except OSError:  # no thread can be started
            return None

    def _done(self, key: _Key, reading: asyncio.Future[Tail]) -> None:
        del self._under_way[key]
        self._hung.discard(reading)
        reading.exception()  # marks it as seen: the reader may have gone
