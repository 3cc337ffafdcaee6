"""Threads that read a run and act on it, so that keys work even if the run answers slowly."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from qcg.pilotjob.api.errors import QCGPJMAError
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.top.model import (
    TAIL,
    Act,
    ActionEnded,
    Effect,
    Event,
    FetchJob,
    FetchOutput,
    FetchRows,
    JobArrived,
    OutputArrived,
    RowsArrived,
    SourceFailed,
    SummaryArrived,
)
from qcg.pilotjob.top.paging import fetch_rows
from qcg.pilotjob.watch.source import ActionRefused, RunSource

SUMMARY_WAIT = 0.25
"""Seconds for which one wait for a summary lasts; the end of the program waits for it."""
RETRY_AFTER = 1.0
"""Seconds after which reading is tried again when it has failed."""


REST = 4.0
"""Pause before a read is repeated, as a multiple of its duration: large runs must not keep a core busy."""
UNREADABLE = (OSError, sqlite3.Error, JournalError, QCGPJMAError)
"""Exceptions of a source when the file system, the registry or the manager fails."""


class Defect(NamedTuple):
    """A thread ended with an unexpected exception."""

    error: BaseException


Post = Callable[["Event | Defect"], None]


class Workers:
    """One thread for summaries, and one for each kind of effect.

    If several effects of one kind wait, only the latest is carried out, because the others are outdated. All actions
    are carried out.
    """

    def __init__(self, source: RunSource, post: Post) -> None:
        self._source = source
        self._post = post
        self._condition = threading.Condition()
        self._ended = False
        self._wanted: dict[type[Effect], list[Effect]] = {kind: [] for kind in (FetchRows, FetchJob, FetchOutput, Act)}
        bodies: list[Callable[[], None]] = [self._summaries]
        bodies += [self._effects_of(kind) for kind in self._wanted]
        self._threads = [threading.Thread(target=self._guarded(body), daemon=True) for body in bodies]
        for thread in self._threads:
            thread.start()

    def want(self, effect: Effect) -> None:
        with self._condition:
            waiting = self._wanted[type(effect)]
            if not isinstance(effect, Act):
                waiting.clear()
            waiting.append(effect)
            self._condition.notify_all()

    def end(self, timeout: float = 1.0) -> None:
        """Stop the threads. A thread that is still busy after `timeout` seconds ends with the process."""
        with self._condition:
            self._ended = True
            self._condition.notify_all()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _guarded(self, body: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                body()
            except BaseException as error:  # noqa: BLE001 the main thread raises it again
                self._post(Defect(error))

        return run

    def _summaries(self) -> None:
        known = None
        while not self._ended:
            try:
                new = self._source.summary() if known is None else self._source.wait(known, SUMMARY_WAIT)
            except UNREADABLE as error:
                self._failed(error)
                known = None
                continue
            if known is None or new != known:
                known = new
                self._post(SummaryArrived(new))

    def _failed(self, error: Exception) -> None:
        self._post(SourceFailed(f"The run cannot be read at the moment: {printable(str(error))}"))
        with self._condition:
            self._condition.wait_for(lambda: self._ended, RETRY_AFTER)

    def _effects_of(self, kind: type[Effect]) -> Callable[[], None]:
        waiting = self._wanted[kind]
        last: Effect | None = None
        rest_until = 0.0

        def is_new() -> bool:
            return self._ended or bool(waiting and waiting[0] != last)

        def body() -> None:
            nonlocal last, rest_until
            while True:
                with self._condition:
                    self._condition.wait_for(lambda: self._ended or bool(waiting))
                    # Repeated reads may wait, user actions may not.
                    self._condition.wait_for(is_new, max(0.0, rest_until - time.monotonic()))
                    if self._ended:
                        return
                    last = effect = waiting.pop(0)
                began = time.monotonic()
                try:
                    self._post(self._carry_out(effect))
                except UNREADABLE as error:
                    self._failed(error)
                if kind is not Act:
                    rest_until = time.monotonic() + REST * (time.monotonic() - began)

        return body

    def _carry_out(self, effect: Effect) -> Event:
        source = self._source
        if isinstance(effect, FetchRows):
            return RowsArrived(fetch_rows(source, effect.request))
        if isinstance(effect, FetchJob):
            return JobArrived(effect.name, source.job(effect.name))
        if isinstance(effect, FetchOutput):
            offset = -TAIL if effect.offset is None else effect.offset
            return OutputArrived(effect, source.output(effect.name, effect.stream, offset, TAIL))
        assert isinstance(effect, Act)
        try:
            return ActionEnded(source.act(effect.action, list(effect.names)), refused=False)
        except (ActionRefused, *UNREADABLE) as error:
            return ActionEnded(str(error), refused=True)
