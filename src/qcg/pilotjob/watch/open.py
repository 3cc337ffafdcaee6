"""Opens a run for displays: live, ended or crashed, and follows it from one manager to the next."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import ConnectionError, QCGPJMAError
from qcg.pilotjob.api.target import target_of_run
from qcg.pilotjob.report.run_summary import RunSummary
from qcg.pilotjob.runs.discovery import RunsError, newest_readable_run
from qcg.pilotjob.runs.manager_process import has_manager
from qcg.pilotjob.watch.dependency_graph import DependencyGraph, Graph
from qcg.pilotjob.watch.job_lists import find_job
from qcg.pilotjob.watch.live_run import LiveRun
from qcg.pilotjob.watch.recorded_run import RecordedRun
from qcg.pilotjob.watch.registry import RunRegistry
from qcg.pilotjob.watch.source import Action, ActionRefused, JobDetails, JobPage, JobQuery, Output

T = TypeVar("T")
P = ParamSpec("P")

CHECK_EVERY = 1.0
"""Seconds between two checks whether a manager has started or ended."""
REQUEST_TIMEOUT = 5.0
"""Seconds after which an unresponsive manager counts as unreachable."""
PATIENCE = 0.5
"""Seconds for which a request waits for a connection to the manager; after that, the registry answers."""


class NoRun(Exception):
    """There is no run to show at a path; the message is a sentence."""


def open_run(path: Path, *, whole: bool = False) -> FollowedRun:
    """The run of a run directory, or the newest one in a working directory. Raises NoRun.

    `whole`: the first summary of a large run is complete, even if that takes long."""
    try:
        return FollowedRun(newest_readable_run(path).absolute(), whole=whole)
    except RunsError as error:
        raise NoRun(str(error)) from None


class FollowedRun:
    """Implements RunSource on a run whose managers come and go."""

    def __init__(self, run_dir: Path, *, whole: bool = False) -> None:
        self.run_dir = run_dir
        self._registry = RunRegistry(run_dir)
        self._lock = threading.Lock()
        """Held only briefly: never during a request to the manager or while a connection closes."""
        self._checked = -CHECK_EVERY
        self._next_connect = 0.0
        self._connecting: threading.Thread | None = None
        self._graph = DependencyGraph()
        self._lists = RecordedRun(run_dir, self._registry, self._graph)
        """Lists jobs and reads output: this needs no manager."""
        self._current: LiveRun | RecordedRun = RecordedRun(
            run_dir, self._registry, self._graph, alive=has_manager(run_dir), first=not whole
        )
        self._closed = threading.Event()

    def read_registry(
        self, query: Callable[Concatenate[sqlite3.Connection, P], T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """The result of a query on the current copy of the registry."""
        return self._registry.read(query, *arguments, **options)

    def read_versioned(self, query: Callable[[sqlite3.Connection, int], T]) -> T:
        """The result of a query that also takes the version of the registry, a number."""
        return self._registry.read_versioned(query)

    @property
    def is_alive(self) -> bool:
        """Whether a manager runs."""
        run = self._run()
        return isinstance(run, LiveRun) or run.alive

    def summary(self) -> RunSummary:
        return self._ask(lambda run: run.summary())

    def wait(self, known: RunSummary, timeout: float) -> RunSummary:
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or self._closed.is_set():
                return known
            # Wait in steps: another manager may start while the run does not change.
            step = min(left, CHECK_EVERY)
            found = self._ask(partial(_wait, known, step))
            if found is not known:
                return found

    def jobs(self, query: JobQuery) -> JobPage:
        return self._lists.jobs(query)

    def job(self, name: str) -> JobDetails | None:
        return self._ask(lambda run: run.job(name))

    def output(self, name: str, stream: str, offset: int, limit: int = 65536) -> Output | None:
        return self._lists.output(name, stream, offset, limit)

    def graph(self, name: str, depth: int, most: int) -> Graph | None:
        """The jobs around a job, at most so many; None if there is no such job."""
        return self._registry.read(self._around, name, depth, most)

    def _around(self, connection: sqlite3.Connection, name: str, depth: int, most: int) -> Graph | None:
        job = name.partition(":")[0]
        return None if find_job(connection, job) is None else self._graph.around(connection, job, depth, most)

    def act(self, action: Action, names: list[str]) -> str:
        # Not repeated if the manager is gone: it may have carried out the action.
        try:
            return self._run(patience=REQUEST_TIMEOUT).act(action, names)
        except ConnectionError as error:
            raise ActionRefused(f"The manager did not answer: {error}.") from None

    def close(self) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            current, connecting = self._current, self._connecting
        if connecting is not None:  # it closes its connection itself
            connecting.join(PATIENCE)
        current.close()
        self._registry.close()

    def _ask(self, question: Callable[[LiveRun | RecordedRun], T]) -> T:
        run = self._run()
        try:
            return question(run)
        except ConnectionError:
            # The manager has ended since: the registry has everything.
            alive = has_manager(self.run_dir)
            with self._lock:
                gone = self._show_recorded(alive=alive) if self._current is run else None
                current = self._current
            if gone is not None:
                gone.close()
            return question(current)

    def _run(self, patience: float = PATIENCE) -> LiveRun | RecordedRun:
        """The live run if its manager answers, otherwise the recorded run."""
        before = None
        with self._lock:
            now = time.monotonic()
            if now >= self._checked + CHECK_EVERY:
                self._checked = now
                before = self._check(now)
            connecting = self._connecting
        if before is not None:
            before.close()
        if connecting is not None:
            connecting.join(patience)
        with self._lock:
            return self._current

    def _check(self, now: float) -> LiveRun | RecordedRun | None:
        """Switch to the registry if the manager has ended, and connect if a manager has started. Returns a run to
        close."""
        alive = has_manager(self.run_dir)
        if not alive:
            self._next_connect = 0.0
        if isinstance(self._current, LiveRun):
            return None if alive else self._show_recorded(alive=False)
        if alive and now >= self._next_connect and self._connecting is None and not self._closed.is_set():
            connecting = threading.Thread(target=self._connect, name="connect", daemon=True)
            connecting.start()
            self._connecting = connecting
        return None if self._current.alive == alive else self._show_recorded(alive=alive)

    def _connect(self) -> None:
        """Connect to the manager in a separate thread: a stopped manager answers late or never."""
        began = time.monotonic()
        run = None
        try:
            manager = Manager.at(target_of_run(self.run_dir), {"log_file": "", "request_timeout": REQUEST_TIMEOUT})
            run = LiveRun(self.run_dir, self._registry, self._graph, manager)
        except QCGPJMAError:  # without a network interface, or just ended
            pass
        finally:
            unneeded = self._show_live(run, time.monotonic() - began)
        if unneeded is not None:
            unneeded.close()

    def _show_live(self, run: LiveRun | None, seconds: float) -> LiveRun | RecordedRun | None:
        """Switch to the manager if it has answered. Returns a run to close."""
        with self._lock:
            self._connecting = None
            # Try a slow manager less often.
            self._next_connect = time.monotonic() + 10 * seconds
            if run is None or self._closed.is_set():
                return run
            before, self._current = self._current, run
            return before

    def _show_recorded(self, *, alive: bool) -> LiveRun | RecordedRun:
        """Switch to the registry; the caller holds the lock. Returns the run to close."""
        before = self._current
        self._current = RecordedRun(self.run_dir, self._registry, self._graph, alive=alive)
        return before


def _wait(known: RunSummary, timeout: float, run: LiveRun | RecordedRun) -> RunSummary:
    return run.wait(known, timeout)
