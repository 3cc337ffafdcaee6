"""Whether the manager of a run is alive, by the contact file that it touches every few seconds. No clock of its own."""

from __future__ import annotations

STALE = 10.0
"""Seconds without a touch after which there is no manager: it touches the file every two seconds, may be busy for five
more before it doubts its own ears, and is looked for every two seconds or more often."""


class Signs:
    def __init__(self) -> None:
        self._stamp: int | None = None
        self._changed_at = 0.0
        self.gone = False
        """There is no manager. False as long as that is not sure."""

    def forget(self) -> None:
        """The manager is heard again: what the file said before is of no interest."""
        self._stamp = None
        self.gone = False

    def saw(self, stamp: int | None, now: float) -> bool:
        """What the file says at this moment; None: it is sure that there is none. Whether a manager has just come
        back."""
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
