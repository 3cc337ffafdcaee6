"""The future of jobs that were submitted together."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future

from qcg.pilotjob.api.asking import list_of
from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.waiting import FINAL


class QCGPJFuture(Future[dict[str, str]]):
    """Done when all its jobs have ended; its result tells how: `{name: state}`. A job that was cancelled, by whomever,
    makes it a cancelled future; a service that is gone gives it a `ConnectionError`."""

    def __init__(self, ids: Iterable[str], qcgpjm: Manager, *, followed: bool = False) -> None:
        """For jobs that were submitted to a manager. `followed`: somebody tells it of their changes; otherwise it finds
        out itself."""
        super().__init__()
        self.names = list_of(ids)
        self._manager = qcgpjm
        self._states = dict.fromkeys(self.names, "QUEUED")
        self._lock = threading.Lock()
        self._settled = False
        if not self.names:
            self._settled = True
            self.set_result({})
        elif not followed:
            from qcg.pilotjob.executor_api.job_watch import JobWatch  # late: it makes futures too

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
        """For whoever follows the jobs: one of them is in this state."""
        with self._lock:
            if self._states[name] not in FINAL:  # late news of an earlier state
                self._states[name] = state
        if not FINAL.issuperset(self._states.values()) or not self._settle():
            return
        if "CANCELED" in self._states.values():
            self._become_cancelled()
        else:
            self.set_result(dict(self._states))

    def fail(self, problem: BaseException) -> None:
        """For whoever follows the jobs: it will never be known how they ended."""
        if self._settle():
            self.set_exception(problem)

    def _settle(self) -> bool:
        """Whether it is this call that decides how the future ends."""
        with self._lock:
            settled, self._settled = self._settled, True
        return not settled

    def _become_cancelled(self) -> None:
        super().cancel()
        # Those who wait for several futures at once are told in a second step.
        self.set_running_or_notify_cancel()
