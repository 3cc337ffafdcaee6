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

from qcg.pilotjob.agent.lease import Lease, Standing
from qcg.pilotjob.host import process_tree

PAUSE = 0.2
"""Seconds between looks at what is still there."""


class Fence:
    def __init__(self, on_fallen: Callable[[], None], on_lease: Callable[[float], None] = lambda until: None) -> None:
        """`on_fallen` is called in the thread, each time before the first process is killed; `on_lease`, in any thread,
        with the moment until which jobs may be started: after it they could run somewhere else as well."""
        self._on_fallen = on_fallen
        self._on_lease = on_lease
        self._changed = threading.Condition()
        self._instance = ""
        self._lease = Lease()
        self._closed = False
        self._thread: threading.Thread | None = None

    def set(self, instance: str, seconds: float) -> None:
        """From now on a manager watches, which gives this node up some time after so many seconds of silence."""
        with self._changed:
            self._instance, self._lease.seconds = instance, seconds
            self._on_lease(self._lease.until)
            self._changed.notify()
        if seconds and self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="fence", daemon=True)
            self._thread.start()

    def known_at(self, moment: float) -> None:
        """At this moment, or later, the manager has heard of this node; or there was none, so that nobody takes
        anything for lost."""
        with self._changed:
            self._lease.known_at(moment)
            self._on_lease(self._lease.until)
            self._changed.notify()

    @property
    def is_set(self) -> bool:
        """Whether a manager watches."""
        return self._lease.seconds > 0

    @property
    def has_fallen(self) -> bool:
        with self._changed:
            return self._thread is not None and self._lease.standing(time.monotonic()) is Standing.OVER

    def kill_all(self) -> None:
        """At once, and whatever the manager says."""
        _signal_all(self._instance, signal.SIGKILL)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        told = False
        stopped: dict[int, process_tree.Process] = {}
        while True:
            with self._changed:
                now = time.monotonic()
                standing = self._lease.standing(now)
                if self._closed:
                    standing = Standing.HELD
                elif standing is Standing.HELD and not stopped:
                    told = False
                    self._changed.wait(self._lease.pause(now) if self._lease.seconds else None)
                    continue
            if standing is Standing.HELD:
                for process in stopped.values():
                    process_tree.send(process, signal.SIGCONT)
                stopped = {}
                if self._closed:
                    return
            elif standing is Standing.ASKED:
                stopped.update(_signal_all(self._instance, signal.SIGSTOP))
                time.sleep(PAUSE)
            else:
                if not told:
                    self._on_fallen()
                    told = True
                stopped = {}
                _signal_all(self._instance, signal.SIGKILL)
                time.sleep(PAUSE)


def _signal_all(instance: str, number: int) -> dict[int, process_tree.Process]:
    """All that carries the marks of this pilot, with what it has started; by pid."""
    snapshot = process_tree.Snapshot()
    found = snapshot.with_descendants(snapshot.marked_with(f"{instance}."))
    found.pop(os.getpid(), None)
    for process in found.values():
        process_tree.send(process, number)
    return found
