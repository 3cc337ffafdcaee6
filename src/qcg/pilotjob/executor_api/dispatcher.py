"""The thread of an executor that talks to its workers, and to the manager about them."""

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
from qcg.pilotjob.executor_api.endpoint import BEGUN, OUTPUT, Answer, Door
from qcg.pilotjob.executor_api.errors import ExecutorError, WorkerLostError
from qcg.pilotjob.executor_api.job_watch import JobWatch
from qcg.pilotjob.executor_api.worker_pool import Crew, Leave, Send, Start, Worker
from qcg.pilotjob.host.safe_open import read_own

LEAVING = 5.0
"""Seconds that workers have to leave before their jobs are cancelled."""
TAIL = 2000
"""Characters of a worker's output that are told when it could not start."""


class Desk:
    """All of it but `post` and `join` runs in its own thread, so that nothing here needs a lock."""

    def __init__(self, manager: Manager, crew: Crew, directory: Path, host: str, job: dict[str, Any]) -> None:
        """`directory` is for this executor alone; `job` is what its workers have beside their resources."""
        self._manager = manager
        self._crew = crew
        self._directory = directory
        self._job = job
        self._prefix = f"worker-{uuid.uuid4().hex[:8]}-"
        self._watch = JobWatch(manager)
        self._poller = zmq.Poller()
        self._door = Door(host, self._poller)
        self._contact = directory / "contact.json"
        self._door.write_contact(self._contact, [path or os.getcwd() for path in sys.path])
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poller.register(self._bell, zmq.POLLIN)
        self._rung = False
        self._bell_lock = threading.Lock()
        self._inbox: deque[Callable[[], None]] = deque()
        self._closing = False
        self._over = False
        self.problem: QCGPJMAError | None = None
        """Why no calls can be made any more."""
        self._thread = threading.Thread(target=self._run, name="qcg-pm-desk", daemon=True)
        self._thread.start()

    # -- for other threads ----------------------------------------------------------------------------------------

    @property
    def is_here(self) -> bool:
        """Whether this is its own thread: in callbacks of futures."""
        return threading.current_thread() is self._thread

    def add(self, call: Call) -> None:
        if not self._post(functools.partial(self._crew.add, call)):
            assert self.problem is not None
            _fail(call, self.problem)

    def drop(self, call: Call) -> None:
        """A call was cancelled."""
        self._post(functools.partial(self._drop, call))

    def cancel_waiting(self) -> None:
        self._post(self._cancel_waiting)

    def close(self) -> None:
        """End once all calls are done."""
        self._post(self._close)

    def join(self) -> None:
        if not self.is_here:
            self._thread.join()

    def _post(self, message: Callable[[], None]) -> bool:
        """Whether it will be read."""
        with self._bell_lock:
            if self._over:
                return False
            self._inbox.append(message)
            if not self._rung:
                self._rung = True
                os.eventfd_write(self._bell, 1)
        return True

    # -- its own thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not (self._closing and self._crew.is_idle):
                self._turn(self._crew.next_look(time.monotonic()))
            self._dismiss_all()
        except BaseException as error:
            self._give_up(ExecutorError(f"this executor has failed: {type(error).__name__}: {error}"))
            raise
        finally:
            self._leave()

    def _leave(self) -> None:
        """Whatever has happened: from now on no call is taken, and none is left without an end."""
        self.problem = self.problem or ExecutorError("this executor has ended")
        with self._bell_lock:
            self._over = True
            os.close(self._bell)
        while self._inbox:
            self._inbox.popleft()()
        self._fail_all(self.problem)
        self._watch.close()
        self._door.close()
        self._contact.unlink(missing_ok=True)
        with suppress(OSError):  # what functions have printed stays
            self._directory.rmdir()

    def _turn(self, until: float | None) -> None:
        """Wait for news, take them in, and do what follows."""
        timeout = None if until is None else math.ceil(max(until - time.monotonic(), 0) * 1000)
        self._poller.poll(timeout)
        with self._bell_lock:
            if self._rung:
                os.eventfd_read(self._bell)
                self._rung = False
        while self._inbox:
            self._inbox.popleft()()
        self._take_answers()
        if self.problem is not None:
            self._give_up(self.problem)  # also the calls that have come since
            return
        try:
            self._carry_out(self._crew.plan(time.monotonic()))
        except QCGPJMAError as problem:
            self._give_up(problem)
        except OSError as error:
            self._give_up(ExecutorError(f"this executor cannot go on: {error}"))

    def _take_answers(self) -> None:
        for message in self._door.receive():
            now = time.monotonic()
            if isinstance(message, Answer):
                call = self._crew.answered(message.worker, message.call, message.outcome.seconds, now)
                if call is not None:
                    _complete(call, *unpack(message.outcome))
            elif not self._crew.joined(message.worker, now):
                self._door.dismiss(message.worker)

    def _carry_out(self, actions: Iterable[Send | Start | Leave]) -> None:
        new, unwanted = [], []
        for action in actions:
            if isinstance(action, Send):
                self._door.send(action.worker.id, action.call)
            elif isinstance(action, Start):
                new.append(action.worker)
            elif action.worker.joined:
                self._door.dismiss(action.worker.id)
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
        self._take_answers()  # what it said before it ended
        problem = None if future.cancelled() else future.exception()
        if isinstance(problem, QCGPJMAError) and not isinstance(problem, JobNotDefinedError):
            self._give_up(problem)
            return
        begun = self._directory / f"{worker.id}{BEGUN}"
        calls = self._crew.lost(worker.id, _number_in(begun))
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
        return f"the worker {name} {what}: {why}; what it printed is in {output}{said}"

    def _give_up(self, problem: QCGPJMAError) -> None:
        """Nobody knows of the workers any more, or can start others. They leave, and calls end with the problem."""
        self.problem = problem
        for worker in self._crew.workers:
            self._door.dismiss(worker.id)
        self._fail_all(problem)

    def _fail_all(self, problem: QCGPJMAError) -> None:
        calls = self._crew.waiting()
        for worker in list(self._crew.workers):
            calls += worker.calls.values()
            self._crew.lost(worker.id)
        for call in calls:
            self._crew.drop(call)
            _fail(call, problem)

    def _drop(self, call: Call) -> None:
        if self._crew.drop(call):
            call.future.set_running_or_notify_cancel()

    def _cancel_waiting(self) -> None:
        for call in self._crew.waiting():
            call.future.cancel()

    def _close(self) -> None:
        self._closing = True

    def _dismiss_all(self) -> None:
        """Nothing is left to do: everybody leaves, the last by force."""
        if self.problem is not None:
            return
        try:
            self._carry_out(self._crew.dismiss_all())
            self._wait_for_leaving()
            left = [self._prefix + worker.id for worker in self._crew.workers]
            if left:
                self._manager.cancel(left)
                self._wait_for_leaving()
        except QCGPJMAError as problem:
            self._give_up(problem)

    def _wait_for_leaving(self) -> None:
        deadline = time.monotonic() + LEAVING
        while any(self._crew.workers) and self.problem is None and time.monotonic() < deadline:
            self._turn(deadline)

    def _output_of(self, worker: Worker) -> Path:
        return self._directory / f"{worker.id}{OUTPUT}"


def _complete(call: Call, result: Any, problem: BaseException | None) -> None:
    if problem is None:
        call.future.set_result(result)
    else:
        call.future.set_exception(problem)


def _fail(call: Call, problem: Exception) -> None:
    """Whether it runs or waits; not when it was cancelled."""
    if call.future.running() or call.future.set_running_or_notify_cancel():
        call.future.set_exception(problem)


def _number_in(path: Path) -> int | None:
    """The call that a worker began last; None when it began none, or that cannot be known."""
    try:
        return int(read_own(path, 64))
    except (OSError, ValueError):
        return None
