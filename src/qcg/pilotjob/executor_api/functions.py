"""An executor for Python functions with persistent workers: no interpreter is started for a call."""

from __future__ import annotations

import atexit
import itertools
import operator
import os
import sys
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import InvalidJobDescriptionError, WrongArgumentsError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.executor_api.calls import Call, Resources, pack_arguments, pack_function
from qcg.pilotjob.executor_api.dispatcher import Dispatcher
from qcg.pilotjob.executor_api.errors import FORKED, ExecutorError
from qcg.pilotjob.executor_api.worker_pool import WorkerPool

P = ParamSpec("P")
R = TypeVar("R")


class _CallExecutor(Executor):
    """Base of executors whose calls all have the same resources."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call `fn(*args, **kwargs)` in a worker."""
        if not callable(fn):
            raise TypeError(f"a function is called, and {fn!r} is none")
        packed = fn.packed if isinstance(fn, _PickledFunction) else pack_function(fn)
        return self._call(packed, pack_arguments(fn, args, kwargs))

    def map(
        self, fn: Callable[..., R], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[R]:
        """The results of `fn` for each of the arguments, in their order. `chunksize` has no effect: calls of short
        functions travel together anyway."""
        if not callable(fn):
            raise TypeError(f"a function is called, and {fn!r} is none")
        return super().map(_PickledFunction(fn), *iterables, timeout=timeout, chunksize=chunksize)

    def _call(self, function: bytes, arguments: bytes) -> Future[Any]:
        raise NotImplementedError


class PilotExecutor(_CallExecutor):
    """`with PilotExecutor() as executor: executor.submit(function, argument).result()`.

    Its workers are jobs of a manager, started when there are calls for them. They keep running for more calls, until
    calls with other resources need their cores, or nothing came for `idle_time` seconds.
    """

    def __init__(
        self,
        manager: Manager | int | None = None,
        max_workers: int | None = None,
        *,
        cores: int = 1,
        gpus: int = 0,
        wd: str | os.PathLike[str] = ".",
        env: Mapping[str, str] | None = None,
        idle_time: float = 60.0,
        host: str = "127.0.0.1",
        server_args: Iterable[Any] = (),
    ) -> None:
        """Without a manager it has one of its own, in `wd`, with `server_args` as options of `qcg-pm-service`. A number
        in its place is `max_workers`, as in other executors.

        `cores` and `gpus` are the resources of each call, unless it is made through `with_resources`. `max_workers`
        limits the workers where the cores of the manager do not. `wd` and `env` are the working directory of the
        functions and additions to their environment; `host` is the address of this host at which workers can reach it.
        """
        if isinstance(manager, int):
            if max_workers is not None:
                raise WrongArgumentsError("give max_workers once: either first or by its name")
            manager, max_workers = None, manager
        if manager is not None and not isinstance(manager, Manager):
            raise WrongArgumentsError(f"the manager of an executor is a Manager object, not {manager!r}")
        if max_workers is not None and max_workers < 1:
            raise WrongArgumentsError(f"max_workers must be at least 1, not {max_workers}")
        directory = Path(wd).absolute()
        job = _worker_job(directory, env or {})
        # A manager that resumes the run must not start the workers of a program that was killed.
        options = ["--wd", directory, "--cancel-with-owner", *server_args]
        self._own_manager = LocalManager(options) if manager is None else None
        self._manager = manager or self._own_manager
        assert self._manager is not None
        try:
            self._total = int(self._manager.resources()["total_cores"])
            self._resources = self._checked(cores, gpus)
            self._dispatcher = Dispatcher(
                self._manager,
                WorkerPool(self._total, max_workers, idle_time),
                _make_directory(self._manager),
                host,
                job,
            )
        except BaseException:
            self._end_manager()
            raise
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._shut = False
        self._ending = threading.Lock()
        self._ended = False
        self._pid = os.getpid()
        _open.add(self)

    @property
    def manager(self) -> Manager:
        """The manager that runs the workers."""
        assert self._manager is not None
        return self._manager

    def with_resources(self, *, cores: int = 1, gpus: int = 0) -> Executor:
        """The same executor for calls with other resources: `executor.with_resources(cores=4).submit(…)`."""
        return _ResourceExecutor(self, self._checked(cores, gpus))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and let the workers go once the last call is done; `wait` until then. `cancel_futures`
        cancels the calls that have not started. Calling it again does nothing but wait. In a callback of a future it
        does not wait: the callbacks of others come after it. A program that ends without it waits for its calls too.
        An interrupt (Ctrl-C) while it waits ends the running calls."""
        if self._pid != os.getpid():
            return  # it continues in the process that made it
        wait = wait and not self._dispatcher.is_current_thread
        with self._lock:
            first, self._shut = not self._shut, True
        if not self._ended:
            if cancel_futures:
                self._dispatcher.cancel_waiting()
            self._dispatcher.close()
        if first and not wait:
            threading.Thread(target=self._end, name="qcg-pm-shutdown").start()
        elif wait:
            try:
                self._end()
            except KeyboardInterrupt as interrupt:
                self._stop(interrupt)
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all calls. After an interrupt or `sys.exit()` in the block: end the calls, and wait for that."""
        if error is None or isinstance(error, Exception):
            self.shutdown()
        else:
            self._stop(error)

    def _stop(self, reason: BaseException) -> None:
        """Cancel waiting calls, end the workers of running ones, and shut down."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._shut = True
        self._dispatcher.stop(ExecutorError(f"the executor was left with {type(reason).__name__} during this call"))
        if not self._dispatcher.is_current_thread:
            self._end()

    def _call(self, function: bytes, arguments: bytes) -> Future[Any]:
        return self.call_with(self._resources, function, arguments)

    def call_with(self, resources: Resources, function: bytes, arguments: bytes) -> Future[Any]:
        """Submit a pickled call with its own resources."""
        future: Future[Any] = Future()
        with self._lock:
            if self._pid != os.getpid():
                raise RuntimeError(FORKED)
            if self._shut:
                raise RuntimeError("this executor has been shut down, and takes no more calls")
            if self._dispatcher.problem is not None:
                raise self._dispatcher.problem
            call = Call(next(self._numbers), resources, function, arguments, future, time.monotonic())
            self._dispatcher.add(call)
        future.add_done_callback(lambda done: self._dispatcher.drop(call) if done.cancelled() else None)
        return future

    def _checked(self, cores: int, gpus: int) -> Resources:
        try:
            cores, gpus = operator.index(cores), operator.index(gpus)
        except TypeError:
            raise WrongArgumentsError(f"cores and gpus must be whole numbers, not {cores!r} and {gpus!r}") from None
        if cores < 1 or gpus < 0:
            raise WrongArgumentsError(f"a call needs at least one core and no negative number of GPUs: {cores}, {gpus}")
        if cores > self._total:
            raise WrongArgumentsError(f"a call wants {cores} cores; the manager has {self._total}")
        return Resources(cores, gpus)

    def _end(self) -> None:
        """Wait for the dispatcher and end the manager. A call continues what an interrupted one has left."""
        with self._ending:
            if not self._ended:
                self._dispatcher.join()
                self._end_manager()
                self._ended = True

    def _end_manager(self) -> None:
        if self._own_manager is not None:
            self._own_manager.finish(cancel=True)


_open: weakref.WeakSet[PilotExecutor] = weakref.WeakSet()


@atexit.register
def _wait_for_calls() -> None:
    """Wait for all calls at the end of the program, as other executors do."""
    with suppress(KeyboardInterrupt):  # it has ended the calls, and the program ends anyway
        for executor in list(_open):
            executor.shutdown()


class _ResourceExecutor(_CallExecutor):
    """A view of an executor with other resources. Its shutdown does nothing: it has no workers of its own."""

    def __init__(self, whole: PilotExecutor, resources: Resources) -> None:
        self._whole = whole
        self._resources = resources

    def _call(self, function: bytes, arguments: bytes) -> Future[Any]:
        return self._whole.call_with(self._resources, function, arguments)


class _PickledFunction:
    """A function that is pickled once for many calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.packed = pack_function(function)
        self.__qualname__ = getattr(function, "__qualname__", repr(function))

    def __call__(self) -> Any:
        raise NotImplementedError


def _worker_job(directory: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """The checked execution section of all workers, so that a mistake is reported at once."""
    job = {
        "exec": sys.executable,
        "args": ["-m", "qcg.pilotjob.executor_api.worker"],
        "wd": str(directory),
        "env": dict(env),
        "model": "threads",
    }
    try:
        Jobs().add_std(name="worker", execution=job)
    except InvalidJobDescriptionError as error:
        raise WrongArgumentsError(f"no worker can be started like this: {error}") from None
    return job


def _make_directory(manager: Manager) -> Path:
    """Make a private directory that workers on other nodes can access."""
    if manager.run_dir is None:
        return Path(tempfile.mkdtemp(prefix="qcg-pm-executor-"))
    directory = manager.run_dir.absolute() / f"executor-{uuid.uuid4().hex[:8]}"
    directory.mkdir(mode=0o700)
    return directory
