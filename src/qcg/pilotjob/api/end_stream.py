"""The stream of job ends that a client follows."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Any, NamedTuple

_lock = threading.Lock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

POSITION_REQUEST = {"request": "endedJobs"}
"""The request for the current position in the stream."""


class Position(NamedTuple):
    """The position of a client in the stream of ends."""

    losses: int
    """How often the registry lost its last ends, whose numbers are then used again."""
    number: int
    """Number of the last received end."""


class EndStream:
    """The ends of jobs, each returned once. Threads that share a client share its stream.

    The manager numbers all ends. The client asks for the ends after the last received one, so that none is missed
    between two calls. Replies may arrive out of order.
    """

    def __init__(self, number: int) -> None:
        """`number`: of the last end before the stream."""
        self._position = Position(0, number)
        self._ends: deque[tuple[str, str]] = deque()

    @property
    def is_ready(self) -> bool:
        """Whether `pop` would return an end."""
        return bool(self._ends)

    @property
    def position(self) -> Position:
        """The position to request ends from, and to pass to `receive` with the reply."""
        return self._position

    def receive(self, asked: Position, data: dict[str, Any]) -> bool:
        """Add the ends of a reply to the request from position `asked`, except ends that another thread received.

        False when the registry lost ends after the request was sent: the reply is outdated, so request again.
        """
        with _lock:
            losses, number = self._position
            if asked.losses != losses:
                return False
            if data["last"] < asked.number:
                # The registry lost its last ends in a crash of the machine, and uses their numbers again.
                losses, number = losses + 1, data["last"]
            for end in data["ends"]:
                if end["number"] > number:
                    number = end["number"]
                    self._ends.append((end["job"], end["state"]))
            self._position = Position(losses, number)
            return True

    def pop(self) -> tuple[str, str] | None:
        """Return the name and state of the next ended job, or None."""
        with _lock:
            return self._ends.popleft() if self._ends else None


def ends_request(position: Position) -> dict[str, Any]:
    """The request for the ends after a position."""
    return {"request": "endedJobs", "after": position.number}
