"""Liveness of one agent: when a silent agent is away, is started again, and is lost. No clock, no processes."""

from __future__ import annotations

import enum

from msgspec import Struct

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
"""Seconds between a failed start of an agent and the next one; doubled after each failure."""
STUCK = 90.0
"""Seconds after which a start that has brought no agent is given up."""


FROZEN = 5.0
"""Seconds without any activity after which an agent is frozen: a live one sends a heartbeat every two seconds."""
STALLED = 300.0
"""Seconds for which an agent is kept that sends only heartbeats, such as one whose file system hangs."""


class LivenessTimes(Struct, frozen=True):
    """Seconds of silence after which an agent is away, restarted, fenced and lost; all in proportion to `lost`.

    An agent that is cut off ends its jobs well before its node is lost, so that no job runs twice. Before that it tries
    several times to connect again, so that a network failure of ten seconds has no effect.
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


class AgentState(enum.Enum):
    EXPECTED = enum.auto()
    """It has never connected, so no job can run there."""
    READY = enum.auto()
    AWAY = enum.auto()
    """Silent, or of an earlier manager and not connected yet: jobs may run there."""
    LOST = enum.auto()
    GONE = enum.auto()
    """It has ended its jobs and exited."""


class Step(enum.Enum):
    """What has to be done about an agent."""

    AWAY = enum.auto()
    START = enum.auto()
    GIVE_UP_START = enum.auto()
    LOST = enum.auto()
    NEVER_CAME = enum.auto()


class AgentLiveness:
    """The liveness of one agent. The supervisor reports messages and heartbeats, and asks which steps are due."""

    def __init__(self, times: LivenessTimes, now: float, *, earlier: LivenessTimes | None = None) -> None:
        """`earlier`: the times that an agent of an earlier manager may use, where one may still run there."""
        self._times = times
        self._its_times = times if earlier is None else earlier
        """The times that the agent uses itself to end its jobs."""
        self.state = AgentState.EXPECTED if earlier is None else AgentState.AWAY
        self.heard = now
        """Time of its last message; before the first one, of the start of the manager."""
        self._heartbeat = now
        """Time of its last heartbeat, or when it may have been unable to know that this manager lives."""
        self._pause = FIRST_PAUSE
        self._start_at = now
        self._was_hung = False
        self._starting_since: float | None = None
        """When the start began that is under way."""

    def message_received(self, now: float) -> None:
        self.heard = now

    def heartbeat_received(self, at: float) -> None:
        """It is alive, even without messages: no other agent is started, and nothing is lost."""
        self._heartbeat = max(self._heartbeat, at)

    def reported(self, now: float) -> None:
        """It has connected and reported its attempts."""
        self.heard = now
        self.state = AgentState.READY
        self._its_times = self._times
        self._pause = FIRST_PAUSE
        self._starting_since = None
        self._was_hung = False

    def start_began(self, now: float) -> None:
        """A command that starts an agent is under way."""
        self._starting_since = now

    def start_ended(self, now: float) -> None:
        """The command has ended. If it has brought no agent, the next one is delayed."""
        if self._starting_since is not None:
            self._starting_since = None
            self._start_at = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    @property
    def is_starting(self) -> bool:
        return self._starting_since is not None

    def is_hung(self, now: float) -> bool:
        """It should have ended its jobs by now, being cut off; if it still runs, it is killed with its jobs."""
        was_there = self.state in (AgentState.AWAY, AgentState.LOST)
        return was_there and self._inactive_for(now) >= self._its_times.fence

    def replacement_delay(self, now: float) -> float | None:
        """Seconds of inactivity after which an agent that is started now replaces one that already runs on its node; 0:
        at once. None: it does not replace it.

        The jobs of the old agent must have ended before the node is lost, and a later start may be too slow for that.
        """
        if self.is_hung(now):
            return 0.0
        in_time = self._its_times.fence - self._inactive_for(now) >= FROZEN
        return FROZEN if self.state is AgentState.AWAY and in_time else None

    def ignores_heartbeats(self, now: float) -> bool:
        """Whether its heartbeats do not count: it should be dead, or has sent nothing else for too long."""
        return self.state is AgentState.LOST or self.is_hung(now) or now - self.heard >= STALLED

    def exited(self) -> None:
        self.state = AgentState.GONE

    def restart_silence(self, now: float) -> None:
        """Count its silence from now on, because the manager itself was suspended or busy."""
        if self.state in (AgentState.READY, AgentState.AWAY):
            self.heard = now

    def due(self, now: float) -> list[Step]:
        """The steps that its silence requires now; each is returned once."""
        silence = now - self.heard
        inactive = self._inactive_for(now)
        steps = []
        if self.state is AgentState.READY and silence >= self._times.away:
            self.state = AgentState.AWAY
            self._start_at = min(self._start_at, now)
            steps.append(Step.AWAY)
        elif self.state is AgentState.EXPECTED and silence >= self._times.never_came:
            self.state = AgentState.LOST
            steps.append(Step.NEVER_CAME)
        if self.state is AgentState.AWAY and inactive >= self._its_times.lost:
            self.state = AgentState.LOST
            steps.append(Step.LOST)
        if self.is_hung(now) and not self._was_hung:
            self._was_hung = True
            self._start_at = min(self._start_at, now)
        if self._starting_since is not None and now - self._starting_since >= STUCK:
            steps.append(Step.GIVE_UP_START)
        if self._may_start(inactive) and self._starting_since is None and now >= self._start_at:
            steps.append(Step.START)
        return steps

    @property
    def active(self) -> float:
        """Time of its last message or heartbeat."""
        return max(self.heard, self._heartbeat)

    def _inactive_for(self, now: float) -> float:
        return now - self.active

    def _may_start(self, inactive: float) -> bool:
        if self.state is AgentState.AWAY:
            return inactive >= self._times.restart
        return self.state in (AgentState.EXPECTED, AgentState.LOST)
