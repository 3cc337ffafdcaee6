"""Rules of `--notify-on`: when to notify the user of the end of a run, of failures and of stalls. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.walltime import parse_wall_time

DEFAULT_ON = "end,first-failure,stall"
DEFAULT_STALL = 3600.0
"""Seconds without a start or an end that `stall` without a time means."""
STALL_PAUSE = 600.0
"""Least seconds between two notifications of the same kind of stall."""
UNWRITABLE_SECONDS = 30.0
"""Seconds for which the registry cannot be written before that counts as a stall."""

FIRST_FAILURE: Literal["first-failure"] = "first-failure"


class NotifyOn(Struct, frozen=True):
    """The events that a user wants to be notified of."""

    end: bool = False
    first_failure: bool = False
    failures: tuple[int, ...] = ()
    """Numbers of failures, in ascending order."""
    stall: float = 0.0
    """Seconds without a start or an end although jobs wait; 0: not wanted."""


class Notification(Struct, frozen=True):
    """The kind of event."""

    event: Literal["end", "first-failure", "failures", "stall"]
    sentence: str
    """For people; printable."""
    details: dict[str, Any] = {}
    """For programs."""


class FailedJob(Struct, frozen=True):
    """A job or an iteration that has failed."""

    name: str
    message: str


class RunStatus(Struct, frozen=True):
    """A sample of the run for the stall rule."""

    progress: tuple[int, ...]
    """Numbers that change with every start and every end of an attempt."""
    waiting: int
    """Jobs and iterations that wait and are not held."""
    running: int
    unwritable: bool
    """The registry cannot be written."""


def parse_notify_on(text: str) -> NotifyOn:
    """Parse `end,first-failure,failures=100,stall=30m`. Raises ValueError with a sentence."""
    ends = first_failure = False
    failures: set[int] = set()
    stall = 0.0
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name == "end" and not equals:
            ends = True
        elif name == FIRST_FAILURE and not equals:
            first_failure = True
        elif name == "failures":
            if not re.fullmatch("[1-9][0-9]{0,9}", value):
                raise ValueError(f"{part.strip()!r} needs a number of failures, as in failures=100")
            failures.add(int(value))
        elif name == "stall":
            stall = _seconds(value) if equals else DEFAULT_STALL
        else:
            raise ValueError(
                f"{part.strip()!r} is none of end, first-failure, failures=N and stall=TIME; several are separated by"
                " commas"
            )
    return NotifyOn(ends, first_failure, tuple(sorted(failures)), stall)


def _seconds(value: str) -> float:
    try:
        return parse_wall_time(value)
    except DescriptionError as error:
        raise ValueError(f"stall: {error}") from None


class NotificationRules:
    """Decides when to notify, under one manager. Each threshold of failures is notified once in a run."""

    def __init__(self, on: NotifyOn, now: float, failures: int, notified: Iterable[str] | None) -> None:
        """`now`: by a clock that does not jump, here and below. `failures`: jobs and iterations that have failed so
        far. `notified`: the thresholds that earlier managers have notified; None if they had nobody to notify, so that
        their failures are no news."""
        self.on = on
        self._thresholds: dict[str, int] = {FIRST_FAILURE: 1} if on.first_failure else {}
        self._thresholds |= {f"failures={number}": number for number in on.failures}
        self._notified = (
            set(notified) if notified is not None else {key for key, at in self._thresholds.items() if at <= failures}
        )
        self._failures = failures
        self._progress: tuple[int, ...] | None = None
        self._quiet_since = now
        self._unwritable_since: float | None = None
        self._notified_stalls: set[str] = set()
        """The stalls that were notified and are not over."""
        self._last_stall: dict[str, float] = {}
        """When each kind of stall was notified last."""

    @property
    def notified(self) -> list[str]:
        """The thresholds that were notified, for the next manager."""
        return sorted(self._notified)

    def failed(self, failures: int, last: FailedJob | None = None) -> list[Notification]:
        """Count failures. `failures`: their number in the whole run. `last`: the last one, if it is known."""
        self._failures = failures
        crossed = [key for key, at in self._thresholds.items() if at <= failures and key not in self._notified]
        self._notified.update(crossed)
        return [_failure(key, failures, last) for key in crossed]

    def find_stalls(self, now: float, status: RunStatus) -> list[Notification]:
        """Return the notifications of stalls that are due."""
        if not self.on.stall:
            return []
        if status.progress != self._progress or not status.waiting:
            self._progress = status.progress
            self._quiet_since = now
            self._notified_stalls.discard("quiet")
        if not status.unwritable:
            self._unwritable_since = None
            self._notified_stalls.discard("registry")
        elif self._unwritable_since is None:
            self._unwritable_since = now
        if self._unwritable_since is not None:
            seconds = now - self._unwritable_since
            if seconds >= min(UNWRITABLE_SECONDS, self.on.stall):
                return self._stalled("registry", now, seconds, status)
        elif now - self._quiet_since >= self.on.stall:
            return self._stalled("quiet", now, now - self._quiet_since, status)
        return []

    def _stalled(self, reason: str, now: float, seconds: float, status: RunStatus) -> list[Notification]:
        last = self._last_stall.get(reason)
        if reason in self._notified_stalls or (last is not None and now - last < STALL_PAUSE):
            return []
        self._notified_stalls.add(reason)
        self._last_stall[reason] = now
        if reason == "registry":
            sentence = f"the registry cannot be written since {_duration(seconds)}, so nothing is started"
        else:
            waiting = pluralize(status.waiting, "job waits", "jobs wait")
            running = pluralize(status.running, "attempt runs", "attempts run")
            sentence = f"no job has started or ended for {_duration(seconds)}: {waiting}, {running}"
        details = {"reason": reason, "seconds": seconds, "waiting": status.waiting, "running": status.running}
        return [Notification("stall", sentence, details)]


def _failure(key: str, failures: int, last: FailedJob | None) -> Notification:
    details: dict[str, Any] = {"failures": failures}
    which = ""
    if last is not None:
        details |= {"job": last.name, "message": last.message}
        which = f"{last.name} has failed" + (f": {last.message}" if last.message else "")
    if key == FIRST_FAILURE:
        return Notification(
            FIRST_FAILURE, printable(which or pluralize(failures, "job has failed", "jobs have failed")), details
        )
    text = pluralize(failures, "job or iteration has failed", "jobs and iterations have failed")
    return Notification("failures", printable(f"{text}; the last one: {which}" if which else text), details)


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
