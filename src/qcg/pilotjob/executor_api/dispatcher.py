"""The dispatcher thread of an executor: exchanges calls with workers, and has the manager start and cancel them."""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import JobNotDefinedError, QCGPJMAError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.common.environment import EXECUTOR_CONTACT, EXECUTOR_WORKER
from qcg.pilotjob.executor_api.calls import Call, unpack
from qcg.pilotjob.executor_api.endpoint import OUTPUT, STARTED, Answer, Endpoint
from qcg.pilotjob.executor_api.errors import ExecutorError, WorkerLostError
from qcg.pilotjob.executor_api.job_watch import JobWatch
from qcg.pilotjob.executor_api.worker_pool import Leave, Send, Start, Worker, WorkerPool
from qcg.pilotjob.host.safe_open import read_own

LEAVING = 5.0
"""Seconds for dismissed workers to exit before their jobs are cancelled."""
TAIL = 2000
"""Characters of the output of a worker in the error message when it could not start."""


class Dispatcher:
    """Runs in its own thread. Methods for other threads only post messages, so that its state needs no lock."""

    def __init__(self, manager: Manager, pool: WorkerPool, directory: Path, host: str, job: dict[str, Any]) -> None:
        """`directory`: for the files of this executor. `job`: the execution section of all workers."""
        self._manager = manager
        self._pool = pool
        self._directory = directory
        self._job = job
        self._prefix = f"worker-{uuid.uuid4().hex[:8]}-"
        self._watch = JobWatch(manager)
        self._poller = zmq.Poller()
        self._endpoint = Endpoint(host, self._poller)
        self._contact = directory / "contact.json"
        self._endpoint.write_contact(self._contact, [path or os.getcwd() for path in sys.path])
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poller.register(self._wakeup, zmq.POLLIN)
        self._woken = False
        self._inbox_lock = threading.Lock()
        self._inbox: deque[Callable[[], None]] = deque()
        self._closing = False
        self._over = False
        self.problem: QCGPJMAError | None = None
        """The error that ended the executor; None while it works."""
        self._thread = threading.Thread(target=self._run, name="qcg-pm-dispatcher", daemon=True)
        self._thread.start()

    # -- for other threads ----------------------------------------------------------------------------------------

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs in the dispatcher thread, as callbacks of futures do."""
        return threading.current_thread() is self._thread

    def add(self, call: Call) -> None:
        if not self._post(functools.partial(self._pool.add, call)):
            assert self.problem is not None
            _fail(call, self.problem)

    def drop(self, call: Call) -> None:
        """Remove a cancelled call."""
        self._post(functools.partial(self._drop, call))

    def cancel_waiting(self) -> None:
        self._post(self._cancel_waiting)

    def close(self) -> None:
        """End the thread after the last call."""
        self._post(self._close)

    def stop(self, problem: ExecutorError) -> None:
        """End the thread now: cancel waiting calls, fail running ones with `problem`, and end their workers."""
        self._post(functools.partial(self._stop, problem))

    def join(self) -> None:
        if not self.is_current_thread:
            self._thread.join()

    def _post(self, message: Callable[[], None]) -> bool:
        """Pass a function to the dispatcher thread; returns False when the thread has ended."""
        with self._inbox_lock:
            if self._over:
                return False
            self._inbox.append(message)
            if not self._woken:
                self._woken = True
                os.eventfd_write(self._wakeup, 1)
        return True

    # -- its own thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not (self._closing and self._pool.is_idle):
                self._turn(self._pool.next_plan_time(time.monotonic()))
            self._dismiss_all()
        except BaseException as error:
            self._give_up(ExecutorError(f"this executor has failed: {type(error).__name__}: {error}"))
            raise
        finally:
            self._leave()

    def _leave(self) -> None:
        """Accept no more calls, and complete the futures of all calls that are left."""
        self.problem = self.problem or ExecutorError("this executor has ended")
        with self._inbox_lock:
            self._over = True
            os.close(self._wakeup)
        while self._inbox:
            self._inbox.popleft()()
        self._fail_all(self.problem)
        self._watch.close()
        self._endpoint.close()
        self._contact.unlink(missing_ok=True)
        with suppress(OSError):  # files with output of functions stay
            self._directory.rmdir()

    def _turn(self, until: float | None) -> None:
        """Wait for messages, process them, and carry out the next actions."""
        timeout = None if until is None else math.ceil(max(until - time.monotonic(), 0) * 1000)
        self._poller.poll(timeout)
        with self._inbox_lock:
            if self._woken:
                os.eventfd_read(self._wakeup)
                self._woken = False
        while self._inbox:
            self._inbox.popleft()()
        self._take_answers()
        if self.problem is not None:
            self._give_up(self.problem)  # including calls submitted since
            return
        try:
            self._carry_out(self._pool.plan(time.monotonic()))
        except QCGPJMAError as problem:
            self._give_up(problem)
        except OSError as error:
            self._give_up(ExecutorError(f"this executor cannot continue: {error}"))

    def _take_answers(self) -> None:
        for message in self._endpoint.receive():
            now = time.monotonic()
            if isinstance(message, Answer):
                call = self._pool.answered(message.worker, message.call, message.outcome.seconds, now)
                if call is not None:
                    _complete(call, *unpack(message.outcome))
            elif not self._pool.joined(message.worker, now):
                self._endpoint.dismiss(message.worker)

    def _carry_out(self, actions: Iterable[Send | Start | Leave]) -> None:
        new, unwanted = [], []
        for action in actions:
            if isinstance(action, Send):
                self._endpoint.send(action.worker.id, action.call)
            elif isinstance(action, Start):
                new.append(action.worker)
            elif action.worker.joined:
                self._endpoint.dismiss(action.worker.id)
            else:
                unwanted.append(self._prefix + action.worker.id)
        if new:
            self._start(new)
        if unwanted:
            self._manager.cancel(unwanted)

    def _start(self, workers: list[Worker]) -> None:
        jobs = Jobs()
        for worker in workers:
            output = str(self._output_of(worker))
            env = {**self._job["env"], EXECUTOR_CONTACT: str(self._contact), EXECUTOR_WORKER: worker.id}
            execution = {**self._job, "env": env, "stdout": output, "stderr": output}
            jobs.add_std(name=self._prefix + worker.id, execution=execution, resources=worker.resources.request())
        for worker, future in zip(workers, self._watch.submit_each(jobs), strict=True):
            future.add_done_callback(functools.partial(self._worker_ended, worker))

    def _worker_ended(self, worker: Worker, future: Future[dict[str, str]]) -> None:
        self._post(functools.partial(self._lose, worker, future))

    def _lose(self, worker: Worker, future: Future[dict[str, str]]) -> None:
        if self.problem is not None:
            return
        self._take_answers()  # answers that it sent before it ended
        problem = None if future.cancelled() else future.exception()
        if isinstance(problem, QCGPJMAError) and not isinstance(problem, JobNotDefinedError):
            self._give_up(problem)
            return
        begun = self._directory / f"{worker.id}{STARTED}"
        calls = self._pool.lost(worker.id, _number_in(begun))
        if calls:
            reason = self._why_ended(worker)
            for call in calls:
                _fail(call, WorkerLostError(reason))
        begun.unlink(missing_ok=True)
        output = self._output_of(worker)
        if output.exists() and not output.stat().st_size:
            output.unlink()

    def _why_ended(self, worker: Worker) -> str:
        name = self._prefix + worker.id
        what = "ended before the call did" if worker.joined else f"with {worker.resources} could not be started"
        try:
            info = self._manager.info_parsed(name)[name]
            why = info.messages or f"its job is {info.status}"
        except (QCGPJMAError, KeyError):
            why = "its job cannot be asked about"
        output = self._output_of(worker)
        if not output.exists() or not output.stat().st_size:
            return f"the worker {name} {what}: {why}"
        said = "" if worker.joined else "\n" + output.read_text(errors="replace")[-TAIL:]
        return f"the worker {name} {what}: {why}; its output is in {output}{said}"

    def _give_up(self, problem: QCGPJMAError) -> None:
        """Dismiss all workers and fail all calls: the manager is gone, or workers cannot be started."""
        self.problem = problem
        for worker in self._pool.workers:
            self._endpoint.dismiss(worker.id)
        self._fail_all(problem)

    def _fail_all(self, problem: QCGPJMAError) -> None:
        calls = self._pool.waiting()
        for worker in list(self._pool.workers):
            calls += worker.calls.values()
            self._pool.lost(worker.id)
        for call in calls:
            self._pool.drop(call)
            _fail(call, problem)

    def _drop(self, call: Call) -> None:
        if self._pool.drop(call):
            call.future.set_running_or_notify_cancel()

    def _cancel_waiting(self) -> None:
        for call in self._pool.waiting():
            call.future.cancel()

    def _close(self) -> None:
        self._closing = True

    def _stop(self, problem: ExecutorError) -> None:
        self._closing = True
        if self.problem is not None:
            return
        workers = [self._prefix + worker.id for worker in self._pool.workers]
        self._cancel_waiting()
        self._give_up(problem)
        if workers:
            with suppress(QCGPJMAError):  # the manager is gone, and its jobs with it
                self._manager.cancel(workers)

    def _dismiss_all(self) -> None:
        """Dismiss all workers, and cancel the jobs of workers that do not exit in time."""
        if self.problem is not None:
            return
        try:
            self._carry_out(self._pool.dismiss_all())
            self._wait_for_leaving()
            left = [self._prefix + worker.id for worker in self._pool.workers]
            if left:
                self._manager.cancel(left)
                self._wait_for_leaving()
        except QCGPJMAError as problem:
            self._give_up(problem)

    def _wait_for_leaving(self) -> None:
        deadline = time.monotonic() + LEAVING
        while any(self._pool.workers) and self.problem is None and time.monotonic() < deadline:
            self._turn(deadline)

    def _output_of(self, worker: Worker) -> Path:
        return self._directory / f"{worker.id}{OUTPUT}"


def _complete(call: Call, result: Any, problem: BaseException | None) -> None:
    if problem is None:
        call.future.set_result(result)
    else:
        call.future.set_exception(problem)


def _fail(call: Call, problem: Exception) -> None:
    """Fail a waiting or running call, unless it was cancelled."""
    if call.future.running() or call.future.set_running_or_notify_cancel():
        call.future.set_exception(problem)


def _number_in(path: Path) -> int | None:
    """The number of the last call that a worker has started; None when that is not known."""
    try:
        return int(read_own(path, 64))
    except (OSError, ValueError):
        return None
