"""One thread that follows jobs by the events of their service, and completes their futures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import ConnectionError, JobNotDefinedError, QCGPJMAError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.waiting import FINAL
from qcg.pilotjob.executor_api.errors import ExecutorError
from qcg.pilotjob.executor_api.qcgpj_future import QCGPJFuture


class JobWatch:
    """Callbacks of the futures run in its thread."""

    def __init__(self, manager: Manager, first: QCGPJFuture | None = None) -> None:
        """`first` is of jobs that were submitted before."""
        self._manager = manager
        self._lock = threading.Lock()
        self._futures: dict[str, QCGPJFuture] = dict.fromkeys(first.names, first) if first else {}
        """By the names of jobs that have not ended."""
        self._submitting = 0
        self._early: dict[str, str] = {}
        """While a submission is under way: states of jobs that nobody follows yet. One of them may be the job that is
        being submitted, for it can end before the answer with its name has come."""
        self._era: object | None = None
        """Within one, no event was lost. None while nothing is heard."""
        self._gone: QCGPJMAError | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="qcg-pm-watch", daemon=True)
        self._thread.start()

    def submit(self, jobs: Jobs) -> QCGPJFuture:
        """One future for all of them."""
        [future] = self._submit(jobs, lambda names: [names])
        return future

    def submit_each(self, jobs: Jobs) -> list[QCGPJFuture]:
        """A future for each of them."""
        return self._submit(jobs, lambda names: [[name] for name in names])

    def pending(self) -> set[QCGPJFuture]:
        """The futures with jobs that have not ended."""
        with self._lock:
            return set(self._futures.values())

    def close(self) -> None:
        """The futures that are left get no more news. The thread ends when it hears of the service again, or that the
        service has ended, or that its manager object was cleaned up."""
        self._closing = True

    @property
    def is_here(self) -> bool:
        """Whether this is its own thread: in callbacks of futures."""
        return threading.current_thread() is self._thread

    def join(self) -> None:
        if not self.is_here:
            self._thread.join()

    def _submit(self, jobs: Jobs, group: Callable[[list[str]], list[list[str]]]) -> list[QCGPJFuture]:
        with self._lock:
            self._submitting += 1
            era = self._era
        try:
            futures = [QCGPJFuture(names, self._manager, followed=True) for names in group(self._manager.submit(jobs))]
            with self._lock:
                self._futures.update({name: future for future in futures for name in future.names})
                early = {name: self._early[name] for future in futures for name in future.names if name in self._early}
        finally:
            with self._lock:
                self._submitting -= 1
                if not self._submitting:
                    self._early = {}
        self._changed(early.items())
        if self._gone is not None:
            self._fail_all(self._gone)
        elif self._era is not None and self._era is not era:
            self._ask()  # what happened between the submission and the answer may have been lost
        return futures

    def _run(self) -> None:
        try:
            while not self._closing:
                try:
                    self._follow()
                except ConnectionError as problem:
                    self._era = None
                    if not self._closing and not self._is_service_there():
                        self._give_up(problem)
        except BaseException as error:
            self._give_up(ExecutorError(f"jobs cannot be followed any more: {type(error).__name__}: {error}"))
            raise

    def _follow(self) -> None:
        """Until the line breaks. What happened before it was there is found out by asking."""
        with self._manager.listen("JST") as events:
            certain = False
            while not self._closing:
                if events.wait(self._manager.poll_delay):
                    self._changed([(data["job"], data["state"]) for _, data in events.take()])
                else:
                    certain = False
                if events.missed or not certain:
                    events.missed = False
                    certain = events.complete
                    self._era = object() if certain else None
                    self._ask()

    def _ask(self) -> None:
        with self._lock:
            names = list(self._futures)
        if not names:
            return
        jobs = self._manager.status(names)["jobs"]
        self._changed([(name, entry["data"]["status"]) for name, entry in jobs.items() if entry["status"] == 0])
        for name, entry in jobs.items():
            if entry["status"] != 0:
                self._lose(name, JobNotDefinedError(entry["message"]))

    def _changed(self, changes: Iterable[tuple[str, str]]) -> None:
        told = []
        with self._lock:
            for name, state in changes:
                future = self._futures.get(name)
                if future is not None:
                    told.append((future, name, state))
                    if state in FINAL:
                        del self._futures[name]
                elif self._submitting:
                    self._early[name] = state
        for future, name, state in told:
            future.job_changed(name, state)

    def _lose(self, name: str, problem: JobNotDefinedError) -> None:
        with self._lock:
            future = self._futures.pop(name, None)
        if future is not None:
            future.fail(problem)

    def _give_up(self, problem: QCGPJMAError) -> None:
        self._closing = True
        self._gone = problem
        self._fail_all(problem)

    def _fail_all(self, problem: QCGPJMAError) -> None:
        with self._lock:
            futures, self._futures = set(self._futures.values()), {}
        for future in futures:
            future.fail(problem)

    def _is_service_there(self) -> bool:
        """A broken line alone does not mean that the service is gone."""
        try:
            self._manager.system_status()
        except ConnectionError:
            return False
        return True
