"""Whether jobs that end count as lost, because their host was cut off from its manager or given up by it."""

from typing import Callable


class CutOff:
    """Two independent states, each with one writer, so that neither thread overwrites what the other one has set.

    The thread of the fence calls `begin`; the driver of the host calls everything else.
    """

    def __init__(self, hold_runner: Callable[[bool], None]) -> None:
        """`hold_runner` is called in both threads with whether the lane runner has to be held. It must not wait."""
        self._hold_runner = hold_runner
        self._begun = 0
        """Number of cut-offs so far. Only the thread of the fence writes it."""
        self._message = ""
        """Why the host was cut off last. Only the thread of the fence writes it."""
        self._over = 0
        """Number of cut-offs that are over. Only the driver writes it."""
        self._given_up = ""
        """Why the host is given up; empty: it is not. Only the driver writes it."""

    @property
    def message(self) -> str:
        """Why jobs that end count as lost; empty when they do not."""
        return self._message if self._begun > self._over else self._given_up

    @property
    def begun(self) -> int:
        """Number of cut-offs so far."""
        return self._begun

    def begin(self, message: str) -> None:
        """From now on jobs that end count as lost, with this message."""
        self._message = message
        self._begun += 1
        self._hold_runner(True)

    def end(self, number: int) -> None:
        """The first `number` cut-offs are over. Later ones are not, also when they began before this call."""
        self._over = number
        self._update_hold()

    def give_up(self, message: str) -> None:
        """From now on jobs that end count as lost, with this message, because the manager takes them for lost; empty:
        the manager does not any more."""
        self._given_up = message
        self._update_hold()

    def _update_hold(self) -> None:
        self._hold_runner(bool(self.message))
        if self.message:
            # A cut-off may have begun, and held the runner, after the line above has read the state.
            self._hold_runner(True)
