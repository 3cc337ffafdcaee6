"""Whether the manager of a run is alive, judged by the contact file that it touches every few seconds."""

from __future__ import annotations

from qcg.pilotjob.wire.timing import CONTACT_INTERVAL

STALE = 5 * CONTACT_INTERVAL
"""Seconds without a touch after which there is no manager. It may be busy for 5 s beyond the refresh interval before it
distrusts its own timing, and agents read the file every 2 s or more often."""


class ManagerLiveness:
    def __init__(self) -> None:
        self._stamp: int | None = None
        self._changed_at = 0.0
        self.gone = False
        """Whether there certainly is no manager."""

    def reset(self) -> None:
        """Discard the times of the file: a message from the manager has arrived, or the file cannot be read."""
        self._stamp = None
        self.gone = False

    def update(self, stamp: int | None, now: float) -> bool:
        """Take the time at which the file was last touched; None when there certainly is no file.

        Returns whether a manager has just come back.
        """
        if stamp is None:
            self._stamp = None
            self.gone = True
            return False
        if stamp != self._stamp:
            came_back = self.gone
            self._stamp, self._changed_at, self.gone = stamp, now, False
            return came_back
        self.gone = now - self._changed_at >= STALE
        return False
