"""A thread that follows jobs by the events of their manager, and completes their futures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import ConnectionError, JobNotDefinedError, QCGPJMAError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.waits import FINAL
from qcg.pilotjob.executor_api.errors import ExecutorError
from qcg.pilotjob.executor_api.qcgpj_future import QCGPJFuture


class JobWatch:
    """Follows jobs; callbacks of their futures run in its thread."""

    def __init__(self, manager: Manager, first: QCGPJFuture | None = None) -> None:
        """`first`: the future of jobs that were submitted before."""
        self._manager = manager
        self._lock = threading.Lock()
        self._futures: dict[str, QCGPJFuture] = dict.fromkeys(first.names, first) if first else {}
        """Futures by the names of unfinished jobs."""
        self._submitting = 0
        self._early: dict[str, str] = {}
        """States of unknown jobs during a submission: a job can end before the answer with its name arrives."""
        self._epoch: object | None = None
        """Changes when events may have been lost; None without a subscription."""
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
        """Stop following. The thread ends with the next event, with the end of the manager, or when its manager object
        is cleaned up."""
        self._closing = True

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs in this thread, as callbacks of futures do."""
        return threading.current_thread() is self._thread

    def join(self) -> None:
        if not self.is_current_thread:
            self._thread.join()

    def _submit(self, jobs: Jobs, group: Callable[[list[str]], list[list[str]]]) -> list[QCGPJFuture]:
        with self._lock:
            self._submitting += 1
            epoch = self._epoch
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
        elif self._epoch is not None and self._epoch is not epoch:
            self._ask()  # events between the submission and its answer may have been lost
        return futures

    def _run(self) -> None:
        try:
            while not self._closing:
                try:
                    self._follow()
                except ConnectionError as problem:
                    self._epoch = None
                    if not self._closing and not self._is_manager_alive():
                        self._give_up(problem)
        except BaseException as error:
            self._give_up(ExecutorError(f"jobs cannot be followed any more: {type(error).__name__}: {error}"))
            raise

    def _follow(self) -> None:
        """Process events until the connection breaks. States before the subscription are queried."""
        with self._manager.listen("JST") as events:
            certain = False
            while not self._closing:
                if events.wait(self._manager.poll_delay):
                    self._changed([(data["job"], data["state"]) for _, data in events.take()])
                else:
                    certain = False
                if events.take_missed() or not certain:
                    certain = events.complete
                    self._epoch = object() if certain else None
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
        changed = []
        with self._lock:
            for name, state in changes:
                future = self._futures.get(name)
                if future is not None:
                    changed.append((future, name, state))
                    if state in FINAL:
                        del self._futures[name]
                elif self._submitting:
                    self._early[name] = state
        for future, name, state in changed:
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

    def _is_manager_alive(self) -> bool:
        """Whether the manager answers: a broken connection alone does not mean that it is gone."""
        try:
            self._manager.system_status()
        except ConnectionError:
            return False
        return True
