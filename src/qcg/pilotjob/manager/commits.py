"""The commit loop: writes journal and report shortly after something has happened, and acknowledges records.

A commit hands everything to the operating system, so that it survives the end of this process. A sync waits for the
disk, so that it survives the end of the machine. Hosts keep their records until they are synced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

# By its own name, which imports it now: nothing can be imported any more once all descriptors are in use.
from concurrent.futures.thread import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import REPORT_SIZE, MetadataKey
from qcg.pilotjob.manager.acks import AckTracker
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.writer import ReportWriter

log = logging.getLogger(__name__)

COMMIT_DELAY = 0.05
SYNC_DELAY = 0.5
RETRY_DELAY = 1.0


class Counted(NamedTuple):
    """A number in the registry that changes in the same commit as the effects of a request: all are stored, or none."""

    key: MetadataKey[int]
    before: int
    after: int


class CommitLoop:
    def __init__(
        self,
        journal: Journal,
        report: ReportWriter,
        state: CoreState,
        acks: AckTracker,
        acknowledge: Callable[[Mapping[str, int]], None],
        schedule: Callable[[], None],
    ) -> None:
        """`acknowledge`: called with the records of hosts that are synced. `schedule`: called when something may be
        started that could not be started before."""
        self.stalled = False
        """Nothing can be written at the moment, so nothing new is started."""
        self.broken = False
        """An unexpected error has left the core in an unknown state: nothing is written any more."""
        self.must_commit = False
        """A change must survive this process before anything more is started."""
        self._journal = journal
        self._report = report
        self._state = state
        self._acks = acks
        self._acknowledge = acknowledge
        self._schedule = schedule
        self._loop = asyncio.get_running_loop()
        self._uncommitted: dict[str, int] = {}
        """By host, its last record that is settled in the core and not committed yet."""
        self._unsynced: dict[str, int] = {}
        """By host, its last record that is committed and not synced yet."""
        self._commit_timer: asyncio.TimerHandle | None = None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._syncing: set[asyncio.Future[None]] = set()
        self._syncer = ThreadPoolExecutor(1, "sync")

    @property
    def is_idle(self) -> bool:
        """Nothing is waiting to be written."""
        return not (self._commit_timer or self._sync_timer or self._syncing)

    def stop_writing(self) -> None:
        """The core is in an unknown state, which must not be written."""
        self.broken = True

    def require_commit(self) -> None:
        """Commit before anything more is started."""
        self.must_commit = True

    def commit_soon(self) -> None:
        if self._commit_timer is None:
            self._commit_timer = self._loop.call_later(COMMIT_DELAY, self._commit_later)

    def try_to_commit(self) -> None:
        """Commit. When that fails, say so, start nothing new and try again soon."""
        try:
            self.commit()
        except (JournalError, ReportError) as error:
            if not self.stalled:
                log.error("%s Until then, no new job is started.", error)
            self.stalled = True
            if self._commit_timer is None:
                self._commit_timer = self._loop.call_later(RETRY_DELAY, self._commit_later)

    def commit(self) -> None:
        """Hand everything to the operating system: it survives this process from now on."""
        if self.broken:
            raise JournalError("Nothing is written any more, because of an unexpected error; see service.log.")
        self._journal.set_metadata(REPORT_SIZE, self._report.flush())
        for host, number in self._acks.settled(self._state.cleanups).items():
            self._uncommitted[host] = number
            self._journal.set_acked(host, number)
        self._journal.commit()
        self._unsynced.update(self._uncommitted)
        self._uncommitted = {}
        self.must_commit = False
        if self.stalled:
            log.info("writing works again; jobs are started again")
            self.stalled = False
            self._schedule()
        if self._sync_timer is None:
            self._sync_timer = self._loop.call_later(SYNC_DELAY, self._sync_later)

    async def sync(self) -> None:
        """Wait until everything that was committed is on the disk: it survives the machine from now on."""
        committed, self._unsynced = self._unsynced, {}
        try:
            try:
                await self._loop.run_in_executor(self._syncer, self._journal.sync)
            except RuntimeError:  # no more threads are allowed: sync in this one, while everything else waits
                self._journal.sync()
        except (JournalError, asyncio.CancelledError):
            for host, number in committed.items():  # a sync that began later may have failed as well
                self._unsynced[host] = max(number, self._unsynced.get(host, 0))
            raise
        # Not sooner: when the machine dies, hosts must still have what the journal has lost.
        self._acknowledge(committed)

    async def store(self) -> None:
        """Wait until all changes so far are on the disk, however long that fails."""
        reported = ""
        while True:
            self.try_to_commit()
            if not self.stalled:
                try:
                    await self.sync()
                    return
                except JournalError as error:
                    if str(error) != reported:
                        reported = str(error)
                        log.error("%s It is tried again.", error)
            await asyncio.sleep(RETRY_DELAY)

    async def close(self) -> None:
        """Write everything for the last time, if it can be written. Hosts keep records that cannot be written for the
        next manager."""
        for timer in (self._commit_timer, self._sync_timer):
            if timer is not None:
                timer.cancel()
        if self._syncing:
            await asyncio.wait(self._syncing)
        is_committed = True
        try:
            self.commit()
        except (JournalError, ReportError) as error:
            log.error("%s This manager ends without it.", error)
            is_committed = False
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        self._syncer.shutdown()
        with suppress(ReportError):  # logged already
            self._report.close()
        self._journal.close(commit=is_committed)

    def _commit_later(self) -> None:
        self._commit_timer = None
        self.try_to_commit()

    def _sync_later(self) -> None:
        self._sync_timer = None
        if self._state.lanes:
            self._schedule()  # launches that wait in a lane may have waited for too long by now
        syncing = asyncio.ensure_future(self.sync())
        self._syncing.add(syncing)
        syncing.add_done_callback(self._synced)

    def _synced(self, syncing: asyncio.Future[None]) -> None:
        self._syncing.discard(syncing)
        error = None if syncing.cancelled() else syncing.exception()
        if isinstance(error, JournalError):
            log.error("%s", error)
        elif error is not None:
            raise error
