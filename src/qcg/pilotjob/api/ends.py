"""The stream of job ends that a client follows."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Any

_lock = threading.Lock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

CURRENT = {"request": "endedJobs"}
"""Asks for the position in the stream, not for ends."""


class EndStream:
    """Ends of jobs, each returned once. Threads that share a client share its stream.

    The manager numbers all ends. The client asks for those after the last one that it has received, so no end is
    missed, whatever happened between two calls.
    """

    def __init__(self, number: int) -> None:
        """`number`: of the last end that is not part of the stream any more."""
        self._number = number
        self._ends: deque[tuple[str, str]] = deque()

    @property
    def is_ready(self) -> bool:
        """Whether `pop` has something to return."""
        return bool(self._ends)

    def question(self) -> dict[str, Any]:
        return {"request": "endedJobs", "after": self._number}

    def receive(self, data: dict[str, Any]) -> None:
        """Take in the reply. Another thread may have received some of these ends already."""
        with _lock:
            # A registry that lost its last ends with the machine gives their numbers to other ends.
            self._number = min(self._number, data["last"])
            for end in data["ends"]:
                if end["number"] > self._number:
                    self._number = end["number"]
                    self._ends.append((end["job"], end["state"]))

    def pop(self) -> tuple[str, str] | None:
        """The name and state of the next job that has ended."""
        with _lock:
            return self._ends.popleft() if self._ends else None
