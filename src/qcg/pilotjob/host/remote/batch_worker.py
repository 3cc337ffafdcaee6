"""Batch jobs of a channel: a thread runs the commands of the batch system, so that the channel can always answer.

Starts and ends are found through the directory of changes, without the batch system. The queue is asked at the
intervals of the host, and at once when the end of a job waits for it.
"""

import contextlib
import os
import threading
import time
from typing import Any, Dict, List

from qcg.pilotjob.host.remote.backends import Backend
from qcg.pilotjob.host.remote.batch_jobs import BatchJobs
from qcg.pilotjob.host.remote.errors import STALE_EPOCH, CommandError
from qcg.pilotjob.host.remote.layout import is_id

TICK = 0.25
"""Seconds between two reads of the directory of changes."""
SHORT_INTERVAL = 1.0
"""Seconds between two queries of the queue while the end of a job depends on it."""


class BatchWorker(Backend):
    def __init__(self, jobs: BatchJobs) -> None:
        self._jobs = jobs
        self._wakeup = threading.Event()
        self._signals: List[Dict[str, Any]] = []
        self._is_closed = False
        self._problem = ""
        self._notices: List[str] = []
        self._polled_at = 0.0
        self._reader, self._writer = os.pipe()
        for descriptor in (self._reader, self._writer):
            os.set_blocking(descriptor, False)
        # A daemon: the channel ends without it. A command of the batch system that runs continues, and keeps its lock.
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """A descriptor that is readable when there may be new records or notices; to be read with `take_notices`."""
        return self._reader

    def take_notices(self) -> List[str]:
        """Sentences for users since the last call."""
        if not self._is_closed:
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 4096)
        notices, self._notices = self._notices, []
        return notices

    def close(self) -> None:
        """End the thread, after the command of the batch system that it runs. A process that ends need not wait."""
        self._is_closed = True
        self._wakeup.set()
        self._thread.join()
        os.close(self._reader)
        os.close(self._writer)

    # Requests

    def set_epoch(self, epoch: int) -> None:
        self._jobs.set_epoch(epoch)

    def submit(self, request: Dict[str, Any]) -> Dict[str, Any]:
        results = self._jobs.accept(request)
        self._wakeup.set()
        return results

    def kill(self, request: Dict[str, Any]) -> List[str]:
        if request.get("how") == "signal":
            self._signals.append(request)
            self._wakeup.set()
            return [id for id in request.get("ids") or () if is_id(id)]
        done = self._jobs.take_order(request)
        self._wakeup.set()
        return done

    def poll(self) -> None:
        """Record ends from status files; batch-system states follow."""
        self._jobs.update(ask=False)
        self._wakeup.set()

    # The thread

    def _work(self) -> None:
        while not self._is_closed:
            is_ordered = self._wakeup.wait(TICK)
            self._wakeup.clear()
            try:
                if self._step(is_ordered):
                    self._announce()
            except (CommandError, OSError) as error:
                if isinstance(error, CommandError) and error.code == STALE_EPOCH:
                    return  # the channel of this thread was replaced, and ends soon
                self._tell(str(error))

    def _step(self, is_ordered: bool) -> bool:
        """Returns whether there may be new records."""
        changed = self._take_changes()
        if changed:
            self._jobs.update(ask=False, changed=changed)
        while self._signals:
            self._jobs.take_order(self._signals.pop(0))
        is_due = self._jobs.has_open and time.monotonic() >= self._polled_at + self._interval()
        if is_ordered or is_due:
            self._jobs.carry_out()
            self._polled_at = time.monotonic()
            self._tell(self._jobs.problem)
        return is_ordered or is_due or bool(changed)

    def _interval(self) -> float:
        if self._jobs.asks_why or self._jobs.has_orders:
            return SHORT_INTERVAL
        return self._jobs.interval

    def _take_changes(self) -> List[str]:
        """The ids of attempts whose status files have changed. Their marks go first: a change after that makes a new
        one."""
        try:
            ids = os.listdir(self._jobs.changes)
        except FileNotFoundError:
            return []
        if ids:
            self._jobs.check_epoch()
        for id in ids:
            os.unlink("%s/%s" % (self._jobs.changes, id))
        return ids

    def _tell(self, problem: str) -> None:
        """Announce a problem once."""
        if problem and problem != self._problem:
            self._notices.append(problem)
            self._announce()
        self._problem = problem

    def _announce(self) -> None:
        with contextlib.suppress(BlockingIOError):  # nobody has read the bytes before it yet
            os.write(self._writer, b".")
