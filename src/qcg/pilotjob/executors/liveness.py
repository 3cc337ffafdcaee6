"""When an agent that is not heard counts as away, is started again, and counts as lost. No clock, no processes."""

from __future__ import annotations

import enum

from msgspec import Struct

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
"""Seconds between an attempt to start an agent that was of no use and the next one; twice as long each time."""
STUCK = 90.0
"""Seconds after which an attempt that has brought no agent is given up."""


FROZEN = 5.0
"""Seconds in which an agent that lives does something, by far: it beats every two of them."""
STALLED = 300.0
"""Seconds for which an agent that only has a pulse is waited for, such as one whose file system hangs."""


class Times(Struct, frozen=True):
    """Seconds of silence; those of an agent that was there are all in proportion to `lost`.

    An agent that is cut off ends its jobs well before its node counts as lost, so that nothing runs twice. It has tried
    to connect again several times by then, so that a cut of ten seconds harms nobody.
    """

    lost: float = 25.0
    never_came: float = 600.0
    """Seconds for an agent to connect for the first time."""

    @property
    def away(self) -> float:
        return 0.24 * self.lost

    @property
    def restart(self) -> float:
        return 0.32 * self.lost

    @property
    def fence(self) -> float:
        return 0.7 * self.lost


class Standing(enum.Enum):
    EXPECTED = enum.auto()
    """It has never been heard, and nothing can run there."""
    READY = enum.auto()
    AWAY = enum.auto()
    """Silent, or of an earlier manager and not heard yet: jobs may run there."""
    LOST = enum.auto()
    GONE = enum.auto()
    """It has ended everything, and itself."""


class Step(enum.Enum):
    AWAY = enum.auto()
    START = enum.auto()
    GIVE_UP_START = enum.auto()
    LOST = enum.auto()
    NEVER_CAME = enum.auto()


class Vigil:
    """One agent, as far as it was heard. Whoever keeps it says what happens and when, and asks what is due."""

    def __init__(self, times: Times, now: float, *, earlier: Times | None = None) -> None:
        """`earlier`: where an earlier manager may have left an agent, with jobs, the times that it may go by."""
        self._times = times
        self._its_times = times if earlier is None else earlier
        """Those that the agent was told last: it ends its jobs by them."""
        self.standing = Standing.EXPECTED if earlier is None else Standing.AWAY
        self.heard = now
        """When it was heard last; before that, when somebody began to listen."""
        self._pulse = now
        """When there was another reason to believe that it lives, or that it may not know better."""
        self._pause = FIRST_PAUSE
        self._start_at = now
        self._was_hung = False
        self._starting_since: float | None = None
        """When the attempt began that may still bring an agent."""

    def hears(self, now: float) -> None:
        self.heard = now

    def pulses(self, at: float) -> None:
        """It is there, even if it has nothing to say: no other is started, and nothing is lost."""
        self._pulse = max(self._pulse, at)

    def reported(self, now: float) -> None:
        """It has connected and told everything."""
        self.heard = now
        self.standing = Standing.READY
        self._its_times = self._times
        self._pause = FIRST_PAUSE
        self._starting_since = None
        self._was_hung = False

    def starts(self, now: float) -> None:
        """An attempt to start an agent is under way."""
        self._starting_since = now

    def start_ended(self, now: float) -> None:
        """The attempt is over. Where it has brought no agent, the next one has to wait."""
        if self._starting_since is not None:
            self._starting_since = None
            self._start_at = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    @property
    def is_starting(self) -> bool:
        return self._starting_since is not None

    def is_hung(self, now: float) -> bool:
        """An agent that is in order would have ended its jobs by now: one that is still there is ended with them."""
        was_there = self.standing in (Standing.AWAY, Standing.LOST)
        return was_there and self._lifeless(now) >= self._its_times.fence

    def spares(self, now: float) -> float | None:
        """How long an agent that is started now lets another one be that is there and does nothing at all, before it
        takes its place; 0: it does so whatever the other one does. `None`: it leaves it alone.

        Its jobs must be gone before the node counts as lost, and a fresh start may take too long then.
        """
        if self.is_hung(now):
            return 0.0
        in_time = self._its_times.fence - self._lifeless(now) >= FROZEN
        return FROZEN if self.standing is Standing.AWAY and in_time else None

    def is_deaf_to(self, now: float) -> bool:
        """Whether its pulse counts for nothing: it should be dead, or has done nothing else for too long."""
        return self.standing is Standing.LOST or self.is_hung(now) or now - self.heard >= STALLED

    def said_goodbye(self) -> None:
        self.standing = Standing.GONE

    def forgive(self, now: float) -> None:
        """The listener itself was asleep, or busy with something else."""
        if self.standing in (Standing.READY, Standing.AWAY):
            self.heard = now

    def due(self, now: float) -> list[Step]:
        """What follows from how long it has been silent; each step is told once."""
        silence = now - self.heard
        lifeless = self._lifeless(now)
        steps = []
        if self.standing is Standing.READY and silence >= self._times.away:
            self.standing = Standing.AWAY
            self._start_at = min(self._start_at, now)
            steps.append(Step.AWAY)
        elif self.standing is Standing.EXPECTED and silence >= self._times.never_came:
            self.standing = Standing.LOST
            steps.append(Step.NEVER_CAME)
        if self.standing is Standing.AWAY and lifeless >= self._its_times.lost:
            self.standing = Standing.LOST
            steps.append(Step.LOST)
        if self.is_hung(now) and not self._was_hung:
            self._was_hung = True
            self._start_at = min(self._start_at, now)
        if self._starting_since is not None and now - self._starting_since >= STUCK:
            steps.append(Step.GIVE_UP_START)
        if self._may_start(lifeless) and self._starting_since is None and now >= self._start_at:
            steps.append(Step.START)
        return steps

    def _lifeless(self, now: float) -> float:
        return now - max(self.heard, self._pulse)

    def _may_start(self, lifeless: float) -> bool:
        if self.standing is Standing.AWAY:
            return lifeless >= self._times.restart
        return self.standing in (Standing.EXPECTED, Standing.LOST)
