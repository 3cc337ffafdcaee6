"""How long the jobs of a node may go on since their manager was known to hear of it. No clock of its own."""

from __future__ import annotations

import enum
import math

TICK = 1.0
"""Seconds between two questions at most."""
OVERSLEPT = 2.0
"""Whoever asks so much later was stopped meanwhile, and perhaps all others with it: then silence means nothing yet."""
ASKING = 5.0
"""Seconds for the manager to answer somebody who has overslept."""


class Standing(enum.Enum):
    HELD = enum.auto()
    ASKED = enum.auto()
    """It would be over, but for an answer that may still come: jobs must not do anything, and need not end."""
    OVER = enum.auto()


class Lease:
    def __init__(self) -> None:
        self.seconds = 0.0
        """0: it is never over."""
        self._known_at = 0.0
        self._asked_at: float | None = None
        self._asking_until = 0.0

    def known_at(self, moment: float) -> None:
        """At this moment, or later, the manager has heard of this node; or there was none."""
        self._known_at = max(self._known_at, moment)

    @property
    def until(self) -> float:
        return self._known_at + self.seconds if self.seconds else math.inf

    def standing(self, now: float) -> Standing:
        """To be asked at least every `TICK` seconds."""
        if self._asked_at is not None and now - self._asked_at > TICK + OVERSLEPT:
            self._asking_until = now + ASKING
        self._asked_at = now
        if now < self.until:
            return Standing.HELD
        return Standing.ASKED if now < self._asking_until else Standing.OVER

    def pause(self, now: float) -> float:
        """Seconds until it may stand otherwise, without anything having happened."""
        return min(max(self.until - now, 0.0), TICK)
