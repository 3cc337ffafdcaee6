"""`--metrics-file`: metrics of a run in a file, for the textfile collector of Prometheus.

The file is written in a thread and replaced as a whole: a reader never sees a part of it, and a file system that hangs
holds up nothing. Where it cannot be written, that is a warning, once until it works again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from qcg.pilotjob.executors.hang_safe import call_in_thread
from qcg.pilotjob.report.metrics_text import metrics_text
from qcg.pilotjob.report.run_summary import RunSummary

log = logging.getLogger(__name__)

INTERVAL = 15.0
"""Seconds between two writes."""
PATIENCE = 2.0
"""Seconds to wait for a write at the end."""
SUMMARY_TIMEOUT = 5.0
"""Seconds to wait for the summary at the end. Otherwise the one before is written."""
NEW_MODE = 0o600
"""Mode of a new file: metrics name the nodes of the run, which are nobody else's business unless the owner says so."""


class MetricsFile:
    def __init__(self, path: str, summarise: Callable[[], Awaitable[RunSummary]]) -> None:
        self._path = path
        self._summarise = summarise
        self._summary: RunSummary | None = None
        self._writing: asyncio.Future[None] | None = None
        self._last_error = ""
        self._ends = False

    async def keep_up_to_date(self) -> None:
        """Write the file now and from time to time, until the last time."""
        while not self._ends:
            if self._writing is None:  # otherwise the file system is slow
                await self.take_summary()
                if not self._ends:
                    self._write(alive=True)
            await asyncio.sleep(INTERVAL)

    async def take_summary(self) -> None:
        """Make the summary that the next write uses."""
        try:
            self._summary = await self._summarise()
        except Exception:  # metrics are no reason to end a run
            log.exception("the metrics of the run cannot be computed")

    async def take_last_summary(self) -> None:
        """Make the summary that is written at the end, unless that takes too long."""
        try:
            await asyncio.wait_for(self.take_summary(), SUMMARY_TIMEOUT)
        except asyncio.TimeoutError:
            log.warning(
                "the last summary took longer than %g s: the metrics are those of the one before", SUMMARY_TIMEOUT
            )

    async def finish(self) -> None:
        """Write the file for the last time, with the last summary."""
        self._ends = True
        await self._wait()
        if self._writing is None:
            self._write(alive=False)
            await self._wait()

    async def _wait(self) -> None:
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=PATIENCE)

    def _write(self, *, alive: bool) -> None:
        if self._summary is None:
            return
        text = metrics_text(replace(self._summary, alive=alive))
        self._writing = call_in_thread(partial(write_atomically, self._path, text), "metrics")
        self._writing.add_done_callback(self._written)

    def _written(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        error = writing.exception()
        if isinstance(error, OSError):
            why = os.strerror(error.errno) if error.errno else str(error)
            if why != self._last_error:
                log.warning("the metrics cannot be written to %s: %s", self._path, why)
            self._last_error = why
        elif error is not None:
            raise error
        else:
            self._last_error = ""


def write_atomically(path: str, text: str) -> None:
    """Replace a file. It keeps its mode; a new one is for its owner alone. Raises OSError."""
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.{os.getpid()}")
    mode = NEW_MODE
    with suppress(FileNotFoundError):
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no regular file")
        mode = stat.S_IMODE(found.st_mode) & 0o666
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
