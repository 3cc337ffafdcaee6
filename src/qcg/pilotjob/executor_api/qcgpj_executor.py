"""An executor for jobs from templates, with a manager of its own."""

from __future__ import annotations

import ast
import os
import string
import textwrap
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from concurrent.futures import Executor
from enum import Enum
from pathlib import Path
from typing import Any

from qcg.pilotjob.api.errors import InvalidJobDescriptionError, WrongArgumentsError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.common.environment import EXECUTOR_JOB_NAME
from qcg.pilotjob.executor_api.errors import FORKED
from qcg.pilotjob.executor_api.job_watch import JobWatch
from qcg.pilotjob.executor_api.qcgpj_future import QCGPJFuture

Template = Callable[[], str | tuple[str, Mapping[str, Any]]]


class ServiceLogLevel(Enum):
    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    DEBUG = "debug"


class ClientLogLevel(Enum):
    INFO = "info"
    DEBUG = "debug"


class QCGPJExecutor(Executor):
    """Starts a manager, and ends it with `shutdown` or at the end of a `with` block."""

    def __init__(
        self,
        *other_args: Any,
        wd: str | os.PathLike[str] = ".",
        resources: str | None = None,
        reserve_core: bool = False,
        enable_rt_stats: bool = False,
        wrapper_rt_stats: str | None = None,
        log_level: str = "info",
    ) -> None:
        """`wd` is the working directory of the manager and of jobs without one, `resources` the nodes to use in the
        form of `--nodes` (all of this machine or allocation when not given), `reserve_core` keeps one core for the
        manager. `other_args` are more options of `qcg-pm-service`."""
        service_level, client_level = _log_levels(log_level)
        options = ["--log", service_level.value, "--wd", os.fspath(wd)]
        if resources:
            options += ["--nodes", str(resources)]
        if reserve_core:
            options.append("--system-core")
        if enable_rt_stats:
            options.append("--enable-rt-stats")
        if wrapper_rt_stats:
            options += ["--wrapper-rt-stats", str(wrapper_rt_stats)]
        client = {"log_file": str(Path(wd, "api.log").absolute()), "log_level": client_level.value}
        self._manager = LocalManager([*options, *other_args], client)
        self._watch = JobWatch(self._manager)
        self._lock = threading.Lock()
        self._shut = False
        self._ended = threading.Event()
        self._pid = os.getpid()

    @property
    def qcgpj_manager(self) -> LocalManager:
        """The manager of this executor, for all other requests."""
        return self._manager

    @property
    def finished(self) -> bool:
        """Whether it has been shut down."""
        return self._shut

    def submit(  # type: ignore[override]  # a template in place of a function
        self, fn: Template, /, *params: Mapping[str, Any] | None, **more_params: Any
    ) -> QCGPJFuture:
        """Submit the job that a template describes. `fn` returns the template, or the template and default values;
        `params` and `more_params` fill in its placeholders, the later ones going before the earlier."""
        description = fill(fn(), *params, more_params)
        with self._lock:
            if self._pid != os.getpid():
                raise RuntimeError(FORKED)
            if self._shut:
                raise RuntimeError("this executor has been shut down, and takes no more jobs")
            return self._watch.submit(Jobs().add_std(description))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs, and end the manager once the last job has ended; `wait` until then. `cancel_futures`
        cancels the jobs that have not started. Calling it again does nothing but wait. In a callback of a future it
        does not wait: the callbacks of others come after it."""
        if self._pid != os.getpid():
            return  # it continues in the process that made it
        wait = wait and not self._watch.is_current_thread
        with self._lock:
            first, self._shut = not self._shut, True
        if cancel_futures:
            for future in self._watch.pending():
                if not future.has_started:
                    future.cancel()
        if first and wait:
            self._end()
        elif first:
            threading.Thread(target=self._end, name="qcg-pm-shutdown").start()
        elif wait:
            self._ended.wait()

    def _end(self) -> None:
        futures.wait(self._watch.pending())
        self._watch.close()
        self._manager.finish()
        self._watch.join()
        self._ended.set()


def fill(template: str | tuple[str, Mapping[str, Any]], *params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the job description of a template with filled placeholders; raises KeyError without a value for one."""
    text, defaults = (template, {}) if isinstance(template, str) else template
    values = dict(defaults)
    for one in params:
        values.update(one or {})
    filled = string.Template(textwrap.dedent(text).strip()).substitute(values)
    try:
        description = ast.literal_eval(filled)
    except (SyntaxError, ValueError) as error:
        raise InvalidJobDescriptionError(f"the filled template is no Python dictionary: {error}\n{filled}") from None
    if not isinstance(description, dict):
        raise InvalidJobDescriptionError(f"the filled template is no Python dictionary:\n{filled}")
    execution = description.get("execution")
    if isinstance(execution, dict):
        execution["env"] = {**(execution.get("env") or {}), EXECUTOR_JOB_NAME: "${jname}"}
    return description


def _log_levels(level: str) -> tuple[ServiceLogLevel, ClientLogLevel]:
    try:
        service = ServiceLogLevel(level.lower())
    except ValueError:
        known = ", ".join(one.value for one in ServiceLogLevel)
        raise WrongArgumentsError(f"the log level {level!r} is not known; use one of {known}") from None
    return service, ClientLogLevel.DEBUG if service is ServiceLogLevel.DEBUG else ClientLogLevel.INFO
