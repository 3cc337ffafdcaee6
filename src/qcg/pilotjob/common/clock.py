"""The clocks of a manager, as one object that tests can replace."""

from __future__ import annotations

import time


class Clock:
    """The time of day and a clock that never jumps."""

    def wall(self) -> float:
        """Epoch seconds. Jumps when the time of day is set."""
        return time.time()

    def steady(self) -> float:
        """Seconds since an arbitrary start. Never jumps."""
        return time.monotonic()
