"""When to connect again, and when to poll. Pure: the time is an argument."""

from __future__ import annotations

FIRST_PAUSE, EAGER_PAUSE, LONGEST_PAUSE = 1.0, 2.0, 60.0
"""Seconds between two attempts to reach a host."""
EAGER_ATTEMPTS = 60
"""The first attempts follow one another at most `EAGER_PAUSE` apart, so that most outages are noticed to be over within
seconds."""
FIRST_POLL = 1.0
"""Seconds after a launch or a record until the next poll."""
_GROWTH = 2.0
_POLL_GROWTH = 1.5


class Backoff:
    """Growing, bounded pauses between attempts to connect."""

    def __init__(self) -> None:
        self._pause = 0.0
        self._failures = 0

    def failed(self, *, by_network: bool) -> float:
        """Seconds to wait before the next attempt. `by_network`: the host was not reached, so the next attempt may
        follow soon. Failed logins follow one another less and less often, because hosts ban users for them."""
        self._failures += 1
        longest = EAGER_PAUSE if by_network and self._failures <= EAGER_ATTEMPTS else LONGEST_PAUSE
        self._pause = min(max(self._pause * _GROWTH, FIRST_PAUSE), longest)
        return self._pause

    def succeeded(self) -> None:
        self._pause = 0.0
        self._failures = 0


class PollSchedule:
    """The times of polls in one-shot mode: soon after a launch or a record, then at growing intervals up to the
    configured one. Without attempts there are no polls."""

    def __init__(self, submit_interval: float, interval: float) -> None:
        self._submit_interval = submit_interval
        self._interval = interval
        self._pause = FIRST_POLL
        self._last = 0.0
        self._next = 0.0

    def ask(self) -> None:
        """Poll as soon as possible, at the request of a user or because a job has sent a message."""
        self._next = 0.0

    def busy(self, now: float) -> None:
        """Something was launched: short jobs are to be expected. A poll that is due earlier is not put off."""
        self._pause = FIRST_POLL
        self._next = min(self._next, now + FIRST_POLL) if self._next else now + FIRST_POLL

    def polled(self, now: float, *, news: bool) -> None:
        self._pause = FIRST_POLL if news else self._pause * _POLL_GROWTH
        self._last = now
        self._next = now + self._pause

    def due(self, now: float, *, live: bool, unstarted: bool) -> float | None:
        """Seconds until the next poll, 0 if it is due; None while no attempt is on the host."""
        if not live:
            return None if self._next else 0.0
        longest = min(self._submit_interval, self._interval) if unstarted else self._interval
        self._pause = min(self._pause, longest)
        return max(0.0, min(self._next, self._last + longest) - now)
