"""The stream of job ends that a client follows."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Any, NamedTuple

_lock = threading.Lock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

CURRENT = {"request": "endedJobs"}
"""Asks for the position in the stream, not for ends."""


class Position(NamedTuple):
    """The position of a client in the stream of ends."""

    losses: int
    """How often the registry was found to have lost its last ends, whose numbers are then given to other ends."""
    number: int
    """Of the last end that was received."""


class EndStream:
    """Ends of jobs, each returned once. Threads that share a client share its stream.

    The manager numbers all ends. The client asks for those after the last one that it has received, so no end is
    missed, whatever happened between two calls. Replies may arrive in another order than they were asked for.
    """

    def __init__(self, number: int) -> None:
        """`number`: of the last end that is not part of the stream any more."""
        self._position = Position(0, number)
        self._ends: deque[tuple[str, str]] = deque()

    @property
    def is_ready(self) -> bool:
        """Whether `pop` has something to return."""
        return bool(self._ends)

    @property
    def position(self) -> Position:
        """The position to ask from, and to give to `receive` with the reply."""
        return self._position

    def receive(self, asked: Position, data: dict[str, Any]) -> bool:
        """Take in the reply to a question asked at `asked`. Another thread may have received some of them already.

        False when ends were lost since the question was asked: the numbers in the reply mean nothing, so ask again.
        """
        with _lock:
            losses, number = self._position
            if asked.losses != losses:
                return False
            if data["last"] < asked.number:
                # The registry lost its last ends, as with the machine, and gives their numbers to other ends.
                losses, number = losses + 1, data["last"]
            for end in data["ends"]:
                if end["number"] > number:
                    number = end["number"]
                    self._ends.append((end["job"], end["state"]))
            self._position = Position(losses, number)
            return True

    def pop(self) -> tuple[str, str] | None:
        """The name and state of the next job that has ended."""
        with _lock:
            return self._ends.popleft() if self._ends else None


def question(position: Position) -> dict[str, Any]:
    """Asks for the ends after this position."""
    return {"request": "endedJobs", "after": position.number}
