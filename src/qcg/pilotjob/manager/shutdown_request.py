"""The request to shut down a manager, with its cause."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.runs.rundir import LOG_NAME

log = logging.getLogger(__name__)


class ShutdownRequest:
    """The first cause counts. Later ones change nothing, except an unexpected error, after which no job is settled."""

    def __init__(self) -> None:
        self.cause: Cause | None = None
        """None until a shutdown is requested."""
        self.reason = ""
        """A clause that says why the manager ends."""
        self.urgent = asyncio.Event()
        """Running jobs are killed without a grace period."""
        self._requested = asyncio.Event()

    @property
    def is_requested(self) -> bool:
        return self.cause is not None

    def request(self, cause: Cause, reason: str = "") -> None:
        if self.cause is None or cause is Cause.DEFECT:
            self.cause, self.reason = cause, reason
        if cause is Cause.DEFECT:
            self.urgent.set()
        self._requested.set()

    def give_up(self, cause: Cause, reason: str) -> None:
        """Request the end because the manager cannot continue."""
        log.critical("%s", reason)
        self.request(cause, reason)

    def give_up_after_defect(self, run_dir: Path) -> None:
        """Request the end because of an unexpected error, which is in the log of the run."""
        self.give_up(Cause.DEFECT, f"an unexpected error occurred, see {run_dir / LOG_NAME}")

    async def wait(self) -> None:
        await self._requested.wait()
