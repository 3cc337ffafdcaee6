"""Kills the jobs of a node that is cut off, before its manager takes them for lost and starts them on other nodes.

The thread of the fence reads /proc only. When the network is cut, the shared file system may hang as well, and so would
each thread that uses it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

from qcg.pilotjob.agent.lease import Lease, LeaseState
from qcg.pilotjob.host import process_tree

PAUSE = 0.2
"""Seconds between two searches for processes that are still alive."""


class Fence:
    """Kills the jobs of this node while its lease is expired."""

    def __init__(self, on_expired: Callable[[], None], on_lease: Callable[[float], None] = lambda until: None) -> None:
        """`on_expired` is called in the thread of the fence, each time before it kills. `on_lease` is called in any
        thread with the end of the lease: jobs started later might run on another node as well."""
        self._on_expired = on_expired
        self._on_lease = on_lease
        self._changed = threading.Condition()
        self._instance = ""
        self._lease = Lease()
        self._closed = False
        self._thread: threading.Thread | None = None

    def arm(self, instance: str, seconds: float) -> None:
        """Use a lease of `seconds`: after that long a silence the manager may soon take this node for lost."""
        with self._changed:
            self._instance = instance
            self._lease.set_duration(seconds)
            self._on_lease(self._lease.until)
            self._changed.notify()
        if seconds and self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="fence", daemon=True)
            self._thread.start()

    def renew(self, moment: float) -> None:
        """Renew the lease: the manager received a message of this node at this moment or later, or there was no
        manager."""
        with self._changed:
            self._lease.renew(moment)
            self._on_lease(self._lease.until)
            self._changed.notify()

    @property
    def is_armed(self) -> bool:
        """Whether a manager takes this node for lost after a silence."""
        return self._lease.expires

    @property
    def lease_expired(self) -> bool:
        """Whether jobs are being killed."""
        with self._changed:
            return self._thread is not None and self._lease.state(time.monotonic()) is LeaseState.EXPIRED

    def kill_all(self) -> None:
        """Kill all jobs now, whatever the state of the lease."""
        _signal_all(self._instance, signal.SIGKILL)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        notified = False
        stopped: dict[int, process_tree.Process] = {}
        while True:
            with self._changed:
                now = time.monotonic()
                state = self._lease.state(now)
                if self._closed:
                    state = LeaseState.VALID
                elif state is LeaseState.VALID and not stopped:
                    notified = False
                    self._changed.wait(self._lease.pause(now) if self._lease.expires else None)
                    continue
            if state is LeaseState.VALID:
                for process in stopped.values():
                    process_tree.send(process, signal.SIGCONT)
                stopped = {}
                if self._closed:
                    return
            elif state is LeaseState.UNCERTAIN:
                stopped.update(_signal_all(self._instance, signal.SIGSTOP))
                time.sleep(PAUSE)
            else:
                if not notified:
                    self._on_expired()
                    notified = True
                stopped = {}
                _signal_all(self._instance, signal.SIGKILL)
                time.sleep(PAUSE)


def _signal_all(instance: str, number: int) -> dict[int, process_tree.Process]:
    """Signal all processes of jobs of this run, with their descendants. Returns them by pid."""
    snapshot = process_tree.Snapshot()
    found = snapshot.with_descendants(snapshot.marked_with(f"{instance}."))
    found.pop(os.getpid(), None)
    for process in found.values():
        process_tree.send(process, number)
    return found
