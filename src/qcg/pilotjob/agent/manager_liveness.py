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
        """There is no manager. False as long as that is not certain."""

    def forget(self) -> None:
        """A message of the manager has arrived: what the file said before does not matter any more."""
        self._stamp = None
        self.gone = False

    def saw(self, stamp: int | None, now: float) -> bool:
        """Take the time of the file's last touch; None: there certainly is no file. Returns whether a manager has just
        come back."""
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

    def could_not_look(self) -> None:
        """A file that cannot be read says nothing about the manager."""
        self._stamp = None
        self.gone = False
