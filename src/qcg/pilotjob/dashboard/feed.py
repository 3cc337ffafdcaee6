"""Summaries for many browsers from one source: one thread waits for the next summary while browsers are connected."""

from __future__ import annotations

import logging
import threading
import time

import msgspec

from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.report.run_summary import RunSummary
from qcg.pilotjob.watch.source import RunSource

log = logging.getLogger(__name__)

IDLE = 30.0
"""Seconds without a request after which the source is no longer queried."""
STEP = 2.0
"""Seconds of one wait for the next summary."""
PAUSE = 1.0
"""Seconds before the next try when the source cannot be read."""


class SummaryFeed:
    """The latest summary, as JSON too, for any number of threads."""

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self._changed = threading.Condition()
        self._latest: RunSummary | None = None
        self._encoded = b""
        self._problem = ""
        self._asked = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False

    def latest(self) -> tuple[RunSummary, bytes]:
        """The current summary and its JSON. Raises JournalError when it cannot be read."""
        with self._changed:
            self._ask()
            self._changed.wait_for(lambda: self._latest is not None or self._problem or self._closed)
            return self._result()

    def next(self, after: float, timeout: float) -> tuple[RunSummary, bytes] | None:
        """The latest summary once its time is another one than `after`; None after so many seconds, and at the end."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                self._ask()
                if self._latest is not None and self._latest.at != after:
                    return self._latest, self._encoded
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    return None
                # Wait in steps, so that the source is queried while clients wait.
                self._changed.wait(min(left, IDLE / 2))

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Wake up all threads that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(STEP + PAUSE)

    def _ask(self) -> None:
        """Note the time of a request, and start the thread; the caller holds the lock."""
        self._asked = time.monotonic()
        if self._thread is None and not self._closed:
            self._latest, self._problem = None, ""
            self._thread = threading.Thread(target=self._follow, name="summaries", daemon=True)
            self._thread.start()

    def _result(self) -> tuple[RunSummary, bytes]:
        if self._latest is None:
            raise JournalError(self._problem or "The dashboard ends.")
        return self._latest, self._encoded

    def _follow(self) -> None:
        try:
            self._run()
        finally:
            # Also after an unexpected error: no client may wait for ever.
            with self._changed:
                if self._thread is threading.current_thread():
                    self._thread, self._latest = None, None
                    self._problem = self._problem or "The summary could not be made; see the output of the dashboard."
                self._changed.notify_all()

    def _run(self) -> None:
        known: RunSummary | None = None
        while True:
            try:
                found = self._source.summary() if known is None else self._source.wait(known, STEP)
                problem = ""
            except JournalError as error:
                found, problem = None, str(error)
            encoded = msgspec.json.encode(found) if found is not None and found is not known else b""
            with self._changed:
                if encoded and found is not None:
                    self._latest, self._encoded = found, encoded
                self._problem = problem
                self._changed.notify_all()
                if self._closed or time.monotonic() >= self._asked + IDLE:
                    self._thread = None
                    return
                if problem:
                    self._changed.wait(PAUSE)
            known = found
