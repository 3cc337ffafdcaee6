"""The future of jobs that were submitted together."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.client_helpers import name_list
from qcg.pilotjob.api.waits import FINAL


class QCGPJFuture(Future[dict[str, str]]):
    """Done when all its jobs have ended, with the result `{name: state}`. A cancelled job makes it a cancelled future;
    the loss of the manager gives it a `ConnectionError`."""

    def __init__(self, ids: Iterable[str], qcgpjm: Manager, *, followed: bool = False) -> None:
        """`followed`: a JobWatch reports the changes of its jobs; otherwise it starts a JobWatch of its own."""
        super().__init__()
        self.names = name_list(ids)
        self._manager = qcgpjm
        self._states = dict.fromkeys(self.names, "QUEUED")
        self._lock = threading.Lock()
        self._settled = False
        if not self.names:
            self._settled = True
            self.set_result({})
        elif not followed:
            from qcg.pilotjob.executor_api.job_watch import JobWatch  # imported late: it imports this module

            watch = JobWatch(qcgpjm, self)
            self.add_done_callback(lambda done: watch.close())

    def running(self) -> bool:
        """True until all jobs have ended, also while they are queued."""
        return not self.done()

    @property
    def has_started(self) -> bool:
        """Whether one of the jobs is executing now."""
        return not self.done() and "EXECUTING" in self._states.values()

    def cancel(self) -> bool:
        """Cancel the jobs, queued or running. False when they had ended before."""
        if not self.done() and self._manager.cancel(self.names)["canceled"] and self._settle():
            self._become_cancelled()
        return self.cancelled()

    def job_changed(self, name: str, state: str) -> None:
        """Called by JobWatch: one of the jobs has changed its state."""
        with self._lock:
            if self._states[name] not in FINAL:  # an outdated event
                self._states[name] = state
        if not FINAL.issuperset(self._states.values()) or not self._settle():
            return
        if "CANCELED" in self._states.values():
            self._become_cancelled()
        else:
            self.set_result(dict(self._states))

    def fail(self, problem: BaseException) -> None:
        """Called by JobWatch: the ends of the jobs cannot be known."""
        if self._settle():
            self.set_exception(problem)

    def _settle(self) -> bool:
        """Whether this call decides the result of the future: only the first one does."""
        with self._lock:
            settled, self._settled = self._settled, True
        return not settled

    def _become_cancelled(self) -> None:
        super().cancel()
        # Wakes up `concurrent.futures.wait` and `as_completed`.
        self.set_running_or_notify_cancel()
