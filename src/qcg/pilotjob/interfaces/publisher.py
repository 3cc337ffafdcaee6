"""Published events about changes of jobs, so that clients need not poll.

`TOPIC {json}`: JST and JFI for a job that changed or ended, IST and IFI for an iteration, NOJ when no job is left, SUM
with the summary of the run, at most once a second and only when it has changed. The events of a topic are numbered. A
subscriber that reads too slowly loses events, and detects that by a gap in the numbers, or by BEAT, a heartbeat with
the last number of each topic. When many queued iterations end at once, no event is sent for each: the number is
increased once more, which subscribers detect as a gap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.observers import Observers, RunObserver
from qcg.pilotjob.report.run_summary import RunSummary, has_changed
from qcg.pilotjob.wire.hub import Frames, Hub, Limits
from qcg.pilotjob.wire.keys import Keys

log = logging.getLogger(__name__)

DOMAIN = "events"
WELCOME = b"WEL"
"""Topic of the message to every new subscriber, after which it misses no event."""
OF_JOBS = ("JST", "JFI", "IST", "IFI")
BEAT = "BEAT"
BEAT_PAUSE = 2.0
SUMMARY = "SUM"
SUMMARY_PAUSE = 1.0
"""Seconds between two summaries."""
LIMITS = Limits(unsent=20_000)
"""A few megabytes are kept for a subscriber that does not read."""
_encode = msgspec.json.Encoder().encode


class _JobEvents(RunObserver):
    """Publishes changes of jobs. Subscribed only while there are subscribers, so that they cost nothing otherwise."""

    def __init__(self, publish: Callable[[Transition], None]) -> None:
        self._publish = publish

    def changed(self, transition: Transition) -> None:
        self._publish(transition)


class Publisher(RunObserver):
    def __init__(self, hub: Hub, keys: Keys | None, address: str) -> None:
        self._run_id = ""
        self._observers: Observers | None = None
        """The observers of the manager; None until requests are served."""
        self._job_events = _JobEvents(self._publish_change)
        self._observes_jobs = False
        self._numbers = dict.fromkeys((*OF_JOBS, "NOJ", SUMMARY), 0)
        """Number of the last event of each topic."""
        self._wanted = dict.fromkeys((*self._numbers, BEAT), 0)
        """Number of subscriptions to each topic. No event is made for a topic without subscribers."""
        self._port = hub.publisher(DOMAIN, keys, address, WELCOME, self._subscriptions, LIMITS)
        self.address = self._port.address
        self._loop = asyncio.get_running_loop()
        self._beating: asyncio.Handle | None = None
        self._manager: Manager | None = None
        self._summaries: asyncio.Task[None] | None = None

    def follow(self, manager: Manager) -> None:
        self._run_id = manager.run_id
        self._manager = manager
        self._observers = manager.engine.observers
        self._observers.subscribe(self)
        self._observe_if_wanted()
        self._summarise_if_wanted()

    def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        if self._summaries is not None:
            self._summaries.cancel()
        self._port.close()

    def _subscriptions(self, messages: list[Frames]) -> None:
        """Count subscriptions: messages are a byte 1 or 0 and the topic, for its first and its last subscriber."""
        for message, *_ in messages:
            change = {b"\x01": 1, b"\x00": -1}.get(message[:1], 0)
            for topic in self._wanted:
                if topic.encode().startswith(message[1:]):
                    self._wanted[topic] += change
        if self._wanted[BEAT] and self._beating is None:
            self._beat_later()
        self._observe_if_wanted()
        self._summarise_if_wanted()

    def _summarise_if_wanted(self) -> None:
        if self._wanted[SUMMARY] and self._manager is not None and self._summaries is None:
            self._summaries = asyncio.ensure_future(self._publish_summaries(self._manager))

    async def _publish_summaries(self, manager: Manager) -> None:
        """Publish the summary whenever it has changed, as long as anybody subscribes to it."""
        last: RunSummary | None = None
        has_failed = False
        try:
            while self._wanted[SUMMARY]:
                try:
                    summary = await manager.summaries.make()
                    if last is None or has_changed(last, summary):
                        self._publish(SUMMARY, {"manager": self._run_id, "summary": summary})
                        last = summary
                    has_failed = False
                except Exception:  # displays are no reason to end a run, and the next summary may be fine
                    if not has_failed:
                        log.exception("the summary of the run cannot be published")
                    has_failed = True
                await asyncio.sleep(SUMMARY_PAUSE)
        finally:
            self._summaries = None

    def _observe_if_wanted(self) -> None:
        wanted = any(self._wanted[topic] for topic in OF_JOBS)
        if self._observers is None or wanted == self._observes_jobs:
            return
        self._observes_jobs = wanted
        if wanted:
            self._observers.subscribe(self._job_events)
        else:
            self._observers.unsubscribe(self._job_events)

    def _publish_change(self, transition: Transition) -> None:
        kind = "I" if transition.position >= 0 else "J"
        if not (self._wanted[kind + "ST"] or self._wanted[kind + "FI"]):
            return
        job = transition.job
        event: dict[str, Any] = {"manager": self._run_id, "job": job.name, "state": transition.state.name}
        if transition.position >= 0:
            assert job.iterations is not None
            event["it"] = job.iterations.indices[transition.position]
        self._publish(kind + "ST", event)
        if transition.state.is_final:
            self._publish(kind + "FI", event)

    def many_ended(self) -> None:
        """Make a gap in the numbers of iteration events, and announce it at once by a heartbeat."""
        for topic in ("IST", "IFI"):
            self._numbers[topic] += bool(self._wanted[topic])
        if self._beating is not None and self._wanted["IFI"]:
            self._beating.cancel()
            self._beating = self._loop.call_soon(self._beat)

    def all_done(self) -> None:
        self._publish("NOJ", {"manager": self._run_id})

    def _publish(self, name: str, event: dict[str, Any]) -> None:
        if self._wanted[name]:
            self._numbers[name] += 1
            self._send(name, {**event, "number": self._numbers[name]})

    def _beat_later(self) -> None:
        self._beating = self._loop.call_later(BEAT_PAUSE, self._beat)

    def _beat(self) -> None:
        self._beating = None
        if self._wanted[BEAT]:
            self._beat_later()
            self._send(BEAT, {"manager": self._run_id, "numbers": self._numbers})

    def _send(self, topic: str, event: dict[str, Any]) -> None:
        self._port.send([topic.encode() + b" " + _encode(event)])
