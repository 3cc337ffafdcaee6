"""Published events: what happens to jobs, for everybody who subscribes. Nobody has to ask again and again.

`TOPIC {json}`: JST and JFI for a job that changed or ended, IST and IFI for an iteration, NOJ when no job is left.
"""

from __future__ import annotations

from typing import Any

import msgspec

from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.wire.hub import Frames, Hub
from qcg.pilotjob.wire.keys import Keys

DOMAIN = "events"
WELCOME = b"WEL"
"""Sent to every new subscriber that wants it: from then on it misses nothing."""
_encode = msgspec.json.Encoder().encode


class Publisher:
    def __init__(self, hub: Hub, keys: Keys | None, address: str) -> None:
        self._run_id = ""
        self._topics: set[bytes] = set()
        """Somebody has subscribed to these. Nobody there: nothing is put together."""
        self._port = hub.publisher(DOMAIN, keys, address, WELCOME, self._subscriptions)
        self.address = self._port.address

    def follow(self, pilot: Pilot) -> None:
        self._run_id = pilot.run_id
        pilot.engine.watchers.append(self._changed)
        pilot.engine.on_all_done.append(self._all_done)

    def _subscriptions(self, messages: list[Frames]) -> None:
        """A first byte 1 or 0 and the topic. The socket tells of a topic's first subscriber and of its last."""
        for message, *_ in messages:
            if message[:1] == b"\x01":
                self._topics.add(message[1:])
            else:
                self._topics.discard(message[1:])

    def _changed(self, transition: Transition) -> None:
        if not self._topics:
            return
        job = transition.job
        event: dict[str, Any] = {"manager": self._run_id, "job": job.name, "state": transition.state.name}
        if transition.position >= 0:
            assert job.iterations is not None
            event["it"] = job.iterations.indices[transition.position]
        kind = b"I" if transition.position >= 0 else b"J"
        self._publish(kind + b"ST", event)
        if transition.state.is_final:
            self._publish(kind + b"FI", event)

    def _all_done(self) -> None:
        self._publish(b"NOJ", {"manager": self._run_id})

    def _publish(self, topic: bytes, event: dict[str, Any]) -> None:
        if any(topic.startswith(wanted) for wanted in self._topics):
            self._port.send([topic + b" " + _encode(event)])
