"""The attempts of one remote host, as this side knows them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from qcg.pilotjob.executors.base import NumberedRecord
from qcg.pilotjob.host.records import Ended, Launch, Running


class RemoteAttempts:
    """Every attempt is in one of three places: waiting to be sent, sent without an answer, or live on the host.

    An attempt that was ever sent may have started, even if the connection was lost, and is sent again until the host
    has answered: the host starts no id twice.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Launch] = {}
        self._sent: dict[str, Launch] = {}
        self._live: dict[str, Running] = {}
        self._maybe_arrived: set[str] = set()
        """Ids in `_waiting` that were sent over a connection that was lost."""

    @property
    def is_empty(self) -> bool:
        return not (self._waiting or self._sent or self._live)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def has_unstarted(self) -> bool:
        """Whether the host has attempts that have not started."""
        return any(not running.pid for running in self._live.values())

    @property
    def has_live(self) -> bool:
        return bool(self._live or self._sent)

    @property
    def may_run(self) -> list[str]:
        """The ids of all attempts that may run on the host."""
        return [*self._live, *self._sent, *self._maybe_arrived]

    def add(self, launch: Launch) -> None:
        self._waiting[launch.id] = launch

    @property
    def waiting(self) -> list[Launch]:
        return list(self._waiting.values())

    def take(self, may_go: Callable[[Launch], bool]) -> list[Launch]:
        """The launches to send now, in the order of their arrival. They count as sent."""
        taken = [launch for launch in self._waiting.values() if may_go(launch)]
        for launch in taken:
            self._sent[launch.id] = self._waiting.pop(launch.id)
            self._maybe_arrived.discard(launch.id)
        return taken

    def answered(self, ids: Iterable[str]) -> None:
        """The host has accepted these launches, or knew them."""
        for id in ids:
            launch = self._sent.pop(id, None)
            if launch is not None and id not in self._live:
                self._live[id] = Running(id, 0, 0.0, launch.grant)

    def drop_unsent(self, id: str) -> bool:
        """Forget a launch that was never sent. False where it may have arrived."""
        if id not in self._waiting or id in self._maybe_arrived:
            return False
        del self._waiting[id]
        return True

    def drop_refused(self, id: str) -> bool:
        """Forget a launch that the host has refused. False where its end has arrived as a record."""
        return self._sent.pop(id, None) is not None

    def may_wait_in_lane(self, id: str) -> bool:
        """Whether it may wait behind another attempt on the host; true also of attempts of an earlier manager."""
        launch = self._waiting.get(id) or self._sent.get(id)
        return launch is None or bool(launch.lane)

    def give_back(self) -> list[str]:
        """Forget all launches that were never sent; returns their ids."""
        unsent = [id for id in self._waiting if id not in self._maybe_arrived]
        for id in unsent:
            del self._waiting[id]
        return unsent

    def recorded(self, records: Sequence[NumberedRecord]) -> None:
        """The host has recorded starts and ends."""
        for record in records:
            body = record.body
            launch = self._sent.pop(body.id, None) or self._waiting.pop(body.id, None)
            self._maybe_arrived.discard(body.id)
            if isinstance(body, Ended):
                self._live.pop(body.id, None)
            elif body.id in self._live or launch is not None:
                self._live[body.id] = Running(body.id, body.pid, body.at, body.grant)

    def connection_lost(self) -> None:
        """Queue the launches without an answer again, before launches that came later."""
        self._maybe_arrived |= self._sent.keys()
        self._waiting = {**self._sent, **self._waiting}
        self._sent = {}

    def clear(self) -> None:
        """Forget all attempts, because nobody will learn how they ended."""
        self._waiting, self._sent, self._live = {}, {}, {}
        self._maybe_arrived = set()

    def reported(self, live: Iterable[Running]) -> list[Running]:
        """The host has reported every attempt it has. Returns accepted attempts missing from the report. Launches of an
        earlier connection missing from it have not arrived, and will not: the host refuses further requests of that
        connection."""
        found = {running.id: running for running in live}
        missing = [running for id, running in self._live.items() if id not in found]
        self._live = found
        for id in found:
            self._waiting.pop(id, None)
            self._sent.pop(id, None)
        self._maybe_arrived.clear()
        return missing

    def all(self) -> list[Running]:
        """Every attempt, as a host that connects reports it."""
        unanswered = [*self._sent.values(), *self._waiting.values()]
        return [*self._live.values(), *(Running(launch.id, 0, 0.0, launch.grant) for launch in unanswered)]


def in_frames(
    launches: Sequence[Launch], most: int, most_bytes: int, size: Callable[[Launch], int]
) -> list[list[Launch]]:
    """Batches as of `evened_out`, each of at most about `most_bytes` bytes, unless one launch alone has more."""
    frames: list[list[Launch]] = []
    for batch in evened_out(launches, most):
        frame: list[Launch] = []
        filled = 0
        for launch in batch:
            filled += size(launch)
            if frame and filled > most_bytes:
                frames.append(frame)
                frame, filled = [], size(launch)
            frame.append(launch)
        frames.append(frame)
    return frames


def evened_out(launches: Sequence[Launch], most: int) -> list[list[Launch]]:
    """Batches of at most `most` launches and nearly equal sizes: 201 are three batches of 67."""
    count = -(-len(launches) // most)
    bounds = [len(launches) * number // count for number in range(count + 1)] if count else [0]
    return [list(launches[first:last]) for first, last in pairwise(bounds)]
