"""Ends the jobs of a node that is cut off, before its manager takes them for lost and runs them somewhere else.

It is a thread that touches nothing but /proc: with the network, the shared file system may be gone as well, and whoever
waits for that can do nothing else.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

from qcg.pilotjob.host import tree

PAUSE = 0.2
"""Seconds between looks at what is still there."""


class Fence:
    def __init__(self, on_fallen: Callable[[], None]) -> None:
        """`on_fallen` is called in the thread, each time before the first process is killed."""
        self._on_fallen = on_fallen
        self._changed = threading.Condition()
        self._instance = ""
        self._seconds = 0.0
        self._known_at = 0.0
        self._lifted = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def set(self, instance: str, seconds: float) -> None:
        """From now on a manager watches, which gives this node up some time after so many seconds of silence."""
        with self._changed:
            self._instance, self._seconds = instance, seconds
            self._changed.notify()
        if seconds and self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="fence", daemon=True)
            self._thread.start()

    def known_at(self, moment: float) -> None:
        """At this moment, or later, the manager has heard of this node."""
        with self._changed:
            self._known_at = max(self._known_at, moment)
            self._lifted = False
            self._changed.notify()

    def lift(self) -> None:
        """There is no manager any more: nobody takes anything for lost, and jobs run on."""
        with self._changed:
            self._lifted = True

    @property
    def has_fallen(self) -> bool:
        return bool(self._seconds) and not self._lifted and time.monotonic() >= self._known_at + self._seconds

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        told = False
        while True:
            with self._changed:
                if self._closed:
                    return
                fallen = self.has_fallen
                if not fallen:
                    told = False
                    left = self._known_at + self._seconds - time.monotonic()
                    # A fence that is lifted may come down again at any time, without a notice.
                    self._changed.wait(max(left, PAUSE) if self._seconds else None)
                    continue
            if not told:
                self._on_fallen()
                told = True
            _kill_all(f"{self._instance}.")
            time.sleep(PAUSE)


def _kill_all(prefix: str) -> None:
    snapshot = tree.Snapshot()
    for process in snapshot.with_descendants(snapshot.marked_with(prefix)).values():
        if process.pid != os.getpid():
            tree.send(process, signal.SIGKILL)
