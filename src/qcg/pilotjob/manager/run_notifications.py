"""Notifies the user of one run: passes its events to the rules, and notifications to the commands of `--notify`."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from qcg.pilotjob.common.clock import Clock
from qcg.pilotjob.common.environment import NOTIFIED_DIRECTORY, NOTIFIED_EVENT, NOTIFIED_RUN, NOTIFIED_SENTENCE
from qcg.pilotjob.common.options import Options
from qcg.pilotjob.common.printable import printable, printable_json
from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.job_states import FAILED, QUEUED, counts_by_name
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.core.waiting import count_waiting
from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.journal.metadata import NOTIFIED
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.notification_commands import Message, NotificationCommands
from qcg.pilotjob.manager.notification_rules import (
    FailedJob,
    Notification,
    NotificationRules,
    RunStatus,
    parse_notify_on,
)
from qcg.pilotjob.manager.observers import RunObserver
from qcg.pilotjob.manager.run_result import RunResult

CHECK_INTERVAL = 5.0
"""Longest time between two checks for stalls, in seconds."""
END_PATIENCE = 30.0
"""Seconds that the commands have at the end of the manager."""
SHORT_END_PATIENCE = 5.0
"""Seconds that the commands have at the end of the manager if its time is over: the batch system may end it."""

SHOWN_AFTER = 1.0
"""Seconds of waiting at the end of the manager after which a notice says so."""
WAITING = "waiting for the command of --notify; Ctrl-C ends that"


class RunNotifications(RunObserver):
    """Made when the jobs of earlier managers are restored, and before anything is started."""

    def __init__(self, manager: Manager, options: Options, clock: Clock) -> None:
        self._manager = manager
        self._engine = manager.engine
        self._clock = clock
        self._commands = NotificationCommands(options.notify, manager.engine.site.root_wd)
        state, journal = manager.engine.state, manager.engine.journal
        failures = state.unit_counts[FAILED]
        self._failures_before = failures - state.failure_limit.failures
        on = parse_notify_on(options.notify_on)
        self._rules = NotificationRules(on, clock.steady(), failures, journal.metadata(NOTIFIED))
        self._interval = min(CHECK_INTERVAL, on.stall / 4 or CHECK_INTERVAL)
        self._engine.observers.subscribe(self)
        self._count_failures(None)

    def failed(self, transition: Transition) -> None:
        self._count_failures(FailedJob(name_of(transition.job, transition.position), transition.message))

    def _count_failures(self, last: FailedJob | None) -> None:
        found = self._rules.failed(self._failures_before + self._engine.state.failure_limit.failures, last)
        if found or last is None:
            # Committed with the failure itself.
            self._engine.journal.set_metadata(NOTIFIED, self._rules.notified)
            self._engine.commits.commit_soon()
        self._send(found)

    async def watch(self) -> None:
        """Look for stalls until it is cancelled."""
        while self._rules.on.stall:
            await asyncio.sleep(self._interval)
            self._send(self._rules.find_stalls(self._clock.steady(), self._status()))

    def _status(self) -> RunStatus:
        state = self._engine.state
        return RunStatus(
            progress=(state.starts, state.executing),
            waiting=max(state.unit_counts[QUEUED] - count_waiting(state).held, 0),
            running=state.executing,
            unwritable=self._engine.commits.stalled,
        )

    async def ended(self, result: RunResult, hurry: asyncio.Event, *, followed: bool) -> None:
        """Notify of the end, and wait for all commands for a while, or until `hurry` is set. `followed`: another
        allocation continues."""
        cause = result.end.cause
        goes_on = followed and cause is not Cause.FAILURES and bool(result.jobs_left or result.requests_left)
        last = self._message(_end_of(result)) if self._rules.on.end and not goes_on else None
        showing = asyncio.get_running_loop().call_later(SHOWN_AFTER, self._engine.notice, WAITING)
        try:
            await self._commands.finish(last, SHORT_END_PATIENCE if cause is Cause.TIME else END_PATIENCE, hurry)
        finally:
            showing.cancel()

    def abandon(self) -> None:
        """Wait for no command any more."""
        self._commands.abandon()

    def _send(self, notifications: list[Notification]) -> None:
        for notification in notifications:
            self._commands.send(self._message(notification))

    def _message(self, notification: Notification) -> Message:
        state = self._engine.state
        variables = {
            NOTIFIED_EVENT: notification.event,
            NOTIFIED_SENTENCE: printable(notification.sentence),
            NOTIFIED_RUN: printable(self._manager.run_id),
            NOTIFIED_DIRECTORY: str(self._engine.journal.path.parent),
        }
        document: dict[str, Any] = {
            "event": notification.event,
            "sentence": notification.sentence,
            "at": self._clock.wall(),
            "run": self._manager.run_id,
            "directory": str(self._engine.journal.path.parent),
            "host": host_name(),
            "jobs": counts_by_name(state.job_counts),
            "iterations": counts_by_name(state.iteration_counts),
            **notification.details,
        }
        return Message(printable_json(msgspec.json.encode(_encodable(document))) + b"\n", variables)


def _end_of(result: RunResult) -> Notification:
    last_line = result.last_line()
    details = {
        "cause": result.end.cause.name.lower(),
        "reason": result.end.reason,
        "exit_code": result.exit_code,
        "jobs": counts_by_name(result.counts),
        "jobs_left": result.jobs_left,
    }
    sentence = result.headline() + (f". {last_line}" if last_line else "")
    return Notification("end", printable(sentence), details)


def _encodable(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the bytes of file names that are not UTF-8 escaped."""
    return {
        key: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
        for key, value in document.items()
    }
