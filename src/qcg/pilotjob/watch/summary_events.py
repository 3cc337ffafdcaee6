"""The summaries that a manager publishes, for threads that wait for the next one."""

from __future__ import annotations

import threading
import time

import msgspec

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.report.run_summary import RunSummary

TOPIC = "SUM"
IDLE = 15.0
"""Seconds after the last wait until the subscription ends: then the manager makes no more summaries."""
STEP = 1.0


class SummaryEvents:
    """A subscription to summaries, which lasts as long as threads wait."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._changed = threading.Condition()
        self._latest: RunSummary | None = None
        self._error: ConnectionError | None = None
        self._waited = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False

    def wait(self, known: RunSummary, timeout: float) -> RunSummary:
        """The next summary after a known one, or the known one after so many seconds. Raises ConnectionError when the
        manager is gone."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                self._waited = time.monotonic()
                if self._error is not None:
                    raise self._error
                if self._thread is None and not self._closed:
                    self._thread = threading.Thread(target=self._listen, name="events", daemon=True)
                    self._thread.start()
                # Not compared by age: the known one may come from a machine with another clock.
                if self._latest is not None and self._latest.at != known.at:
                    return self._latest
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    return known
                self._changed.wait(left)

    def receive(self, summary: RunSummary) -> None:
        """Store a summary from an event, or from the answer to a request, as the latest one."""
        with self._changed:
            self._latest = summary
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(2 * STEP)

    def _listen(self) -> None:
        try:
            with self._manager.listen(TOPIC) as events:
                while not self._is_over():
                    if events.wait(STEP):
                        summaries = [data["summary"] for topic, data in events.take() if topic == TOPIC]
                        if summaries:
                            self.receive(msgspec.convert(summaries[-1], RunSummary))
        except ConnectionError as error:
            with self._changed:
                self._error = error
        finally:
            with self._changed:
                self._thread = self._latest = None
                self._changed.notify_all()

    def _is_over(self) -> bool:
        with self._changed:
            return self._closed or time.monotonic() >= self._waited + IDLE
