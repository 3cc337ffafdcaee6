"""The lease of a node: how long its jobs may run after the last contact with its manager. Callers pass the time."""

from __future__ import annotations

import enum
import math

CHECK_INTERVAL = 1.0
"""Longest time between two checks, in seconds."""
LATE = 2.0
"""Seconds of delay of a check after which this process must have been suspended, perhaps with the whole machine. Then
the manager may be alive although no message of it was read."""
ANSWER_TIMEOUT = 5.0
"""Seconds for the manager to answer after this process was suspended."""


class LeaseState(enum.Enum):
    VALID = enum.auto()
    UNCERTAIN = enum.auto()
    """Expired while this process was suspended: jobs are stopped, not killed, until the manager answers or not."""
    EXPIRED = enum.auto()


class Lease:
    """Expires `seconds` after it was last renewed."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        """Duration of the lease; 0: it never expires."""
        self._renewed_at = 0.0
        self._checked_at: float | None = None
        self._answer_due = 0.0

    @property
    def expires(self) -> bool:
        """Whether it ever expires."""
        return self._seconds > 0

    def set_duration(self, seconds: float) -> None:
        """Change the duration, counted from the last renewal; 0: it never expires."""
        self._seconds = seconds

    def renew(self, moment: float) -> None:
        """Renew the lease: the manager received a message of this node at this moment or later, or there was no
        manager."""
        self._renewed_at = max(self._renewed_at, moment)

    @property
    def until(self) -> float:
        return self._renewed_at + self._seconds if self._seconds else math.inf

    def state(self, now: float) -> LeaseState:
        """The state now. To be called at least every `CHECK_INTERVAL` seconds."""
        if self._checked_at is not None and now - self._checked_at > CHECK_INTERVAL + LATE:
            self._answer_due = now + ANSWER_TIMEOUT
        self._checked_at = now
        if now < self.until:
            return LeaseState.VALID
        return LeaseState.UNCERTAIN if now < self._answer_due else LeaseState.EXPIRED

    def pause(self, now: float) -> float:
        """Seconds until the next check."""
        return min(max(self.until - now, 0.0), CHECK_INTERVAL)
