"""Restart policy: how long to wait before an agent that has ended is replaced."""

from __future__ import annotations

MOST_FAILED_STARTS = 5
"""Agents that may end in a row before they have connected. Then no further one is started."""
FIRST_PAUSE = 0.5
"""Seconds before the next start after an agent that lived for a short time. Each pause is twice as long as the last."""
LONGEST_PAUSE = 30.0
LONG_LIFE = 60.0
"""Seconds of life after which the pauses start again with the first one."""


class Restarts:
    """Counts failed starts and short lives of agents. It has no clock: the caller says how long an agent lived."""

    def __init__(self) -> None:
        self.failed_starts = 0
        """In a row."""
        self._short_lives = 0
        """In a row, of agents that had connected."""

    @property
    def are_hopeless(self) -> bool:
        return self.failed_starts >= MOST_FAILED_STARTS

    def after_failed_start(self) -> float | None:
        """Seconds to wait after an agent that did not connect; None when no further one is to be started."""
        self.failed_starts += 1
        return None if self.are_hopeless else FIRST_PAUSE * 2.0 ** (self.failed_starts - 1)

    def after_life_of(self, seconds: float) -> float:
        """Seconds to wait after an agent that had connected. The first that dies is replaced at once."""
        self.failed_starts = 0
        if seconds >= LONG_LIFE:
            self._short_lives = 0
            return 0.0
        self._short_lives += 1
        if self._short_lives == 1:
            return 0.0
        # The exponent is bounded, too: a float cannot hold every power of 2.
        return min(FIRST_PAUSE * 2.0 ** min(self._short_lives - 2, 10), LONGEST_PAUSE)
