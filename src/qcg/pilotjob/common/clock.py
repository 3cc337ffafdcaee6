"""The clocks of a manager, as one object that tests can replace."""

from __future__ import annotations

import time


class Clock:
    def wall(self) -> float:
        """Seconds of the epoch. It jumps when somebody sets the time of day."""
        return time.time()

    def steady(self) -> float:
        """Seconds since an unknown moment. It never jumps."""
        return time.monotonic()
