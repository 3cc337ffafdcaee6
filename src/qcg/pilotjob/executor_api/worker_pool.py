"""Who does what: which worker gets which call, when workers are started and when they leave. No I/O, no clock.

Each worker has the resources of one kind of call, and takes many calls. Calls are taken in the order of submission,
per kind. Where cores are short, the kind whose first call has waited longest goes first: idle workers of other kinds
leave for it at once, and busy ones after their calls, when it has no worker at all and has waited a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Union

from msgspec import Struct, field

from qcg.pilotjob.executor_api.calls import Call, Resources

CLAIM_AFTER = 1.0
"""Seconds that a call without any worker of its kind waits before busy workers of other kinds leave for it."""
SHORT = 0.005
"""Seconds. Functions that take no longer, as far as seen, are sent ahead: their worker never waits between them."""
FORGETTING = 0.9
"""How much of a long call is remembered with each that follows."""
AHEAD = 4
MOST_FUNCTIONS = 10_000
"""That are remembered."""


class Worker(Struct, eq=False):
    id: str
    resources: Resources
    joined: bool = False
    leaving: bool = False
    calls: OrderedDict[int, Call] = field(default_factory=OrderedDict)
    """That it has been sent and has not answered."""
    idle_since: float = 0.0

    @property
    def is_free(self) -> bool:
        return not self.leaving and not self.calls


class Send(Struct, frozen=True):
    worker: Worker
    call: Call


class Start(Struct, frozen=True):
    worker: Worker


class Leave(Struct, frozen=True):
    """After the calls that it has."""

    worker: Worker


Action = Union[Send, Start, Leave]


class Crew:
    def __init__(self, cores: int, max_workers: int | None, idle_time: float) -> None:
        self._cores = cores
        self._most = max_workers
        self._idle_time = idle_time
        self._workers: dict[str, Worker] = {}
        self._waiting: dict[Resources, OrderedDict[int, Call]] = {}
        self._longest: dict[int, float] = {}
        """Seconds that a function took at most of late, by the hash of its text."""
        self._started = 0

    # -- what happens ---------------------------------------------------------------------------------------------

    def add(self, call: Call) -> None:
        self._waiting.setdefault(call.resources, OrderedDict())[call.number] = call

    def drop(self, call: Call) -> bool:
        """Whether the call was still waiting, and is not any more."""
        waiting = self._waiting.get(call.resources)
        return waiting is not None and waiting.pop(call.number, None) is not None

    def joined(self, worker_id: str, now: float) -> bool:
        """A worker is ready for calls. Whether it is one of ours."""
        worker = self._workers.get(worker_id)
        if worker is None:
            return False
        worker.joined = True
        worker.idle_since = now
        return True

    def answered(self, worker_id: str, number: int, seconds: float, now: float) -> Call | None:
        """The call that a worker has done."""
        worker = self._workers.get(worker_id)
        call = worker.calls.pop(number, None) if worker else None
        if worker is None or call is None:
            return None
        worker.idle_since = now
        if len(self._longest) >= MOST_FUNCTIONS:
            self._longest = {}
        function = hash(call.function)
        self._longest[function] = max(seconds, FORGETTING * self._longest.get(function, 0.0))
        return call

    def lost(self, worker_id: str, begun: int | None = None) -> list[Call]:
        """A worker has ended. The calls that are lost with it; and, when no worker of its kind can be started, all that
        wait. `begun` is the number of the last call that it began, where that is known: those after it go to others.
        """
        worker = self._workers.pop(worker_id)
        calls = list(worker.calls.values())
        if begun is not None:
            place = next((place for place, call in enumerate(calls, 1) if call.number == begun), 0)
            self._put_back(calls[place:])
            calls = calls[:place]
        if not worker.joined and not worker.leaving and not self._of(worker.resources):
            calls += self._waiting.pop(worker.resources, {}).values()
        return calls

    def _put_back(self, calls: list[Call]) -> None:
        """At the head, for they were there before."""
        for call in reversed(calls):
            waiting = self._waiting.setdefault(call.resources, OrderedDict())
            waiting[call.number] = call
            waiting.move_to_end(call.number, last=False)

    # -- what to do -----------------------------------------------------------------------------------------------

    @property
    def workers(self) -> Iterable[Worker]:
        return self._workers.values()

    @property
    def is_idle(self) -> bool:
        """Nothing waits, and nobody works."""
        return not any(self._waiting.values()) and not any(worker.calls for worker in self._workers.values())

    def waiting(self) -> list[Call]:
        return [call for calls in self._waiting.values() for call in calls.values()]

    def plan(self, now: float) -> list[Action]:
        """What to do now. It counts as done."""
        actions: list[Action] = []
        for calls in self._by_age():
            first = next(iter(calls.values()))
            actions += self._hand_out(first.resources, calls)
        for calls in self._by_age():
            first = next(iter(calls.values()))
            actions += self._start(first.resources, len(calls))
            if self._lacks_workers(first.resources, len(calls)):
                actions += self._make_room(first, now)
                if not self._of(first.resources):
                    break  # what gets free is for this one
        actions += self._send_home(now)
        return actions

    def dismiss_all(self) -> list[Leave]:
        staying = [worker for worker in self._workers.values() if not worker.leaving]
        for worker in staying:
            worker.leaving = True
        return [Leave(worker) for worker in staying]

    def next_look(self, now: float) -> float | None:
        """When to plan again though nothing happens."""
        free = [worker for worker in self._workers.values() if worker.joined and worker.is_free]
        times = [worker.idle_since + self._idle_time for worker in free]
        for calls in self._by_age():
            first = next(iter(calls.values()))
            if not self._of(first.resources) and first.submitted + CLAIM_AFTER > now:
                times.append(first.submitted + CLAIM_AFTER)
        return min(times, default=None)

    def _by_age(self) -> list[OrderedDict[int, Call]]:
        """The waiting calls of each kind; the kind with the oldest call first."""
        return sorted((calls for calls in self._waiting.values() if calls), key=lambda calls: next(iter(calls)))

    def _of(self, resources: Resources) -> list[Worker]:
        return [one for one in self._workers.values() if one.resources == resources and not one.leaving]

    def _hand_out(self, resources: Resources, calls: OrderedDict[int, Call]) -> Iterator[Send]:
        """One call to everybody who is free, then more of the short ones, evenly."""
        ready = [worker for worker in self._of(resources) if worker.joined]
        for most in range(1, AHEAD + 1):
            for worker in ready:
                if not calls:
                    return
                if len(worker.calls) >= most or (worker.calls and not self._are_short(worker, calls)):
                    continue
                call = calls.popitem(last=False)[1]
                if call.future.running() or call.future.set_running_or_notify_cancel():
                    worker.calls[call.number] = call
                    yield Send(worker, call)

    def _are_short(self, worker: Worker, calls: OrderedDict[int, Call]) -> bool:
        """What the worker has, and what would be next."""
        beside = [*worker.calls.values(), next(iter(calls.values()))]
        return all(self._longest.get(hash(call.function), SHORT) < SHORT for call in beside)

    def _start(self, resources: Resources, waiting: int) -> Iterator[Start]:
        while self._lacks_workers(resources, waiting) and self._fits(resources, self._workers.values()):
            self._started += 1
            worker = Worker(f"w{self._started}", resources)
            self._workers[worker.id] = worker
            yield Start(worker)

    def _lacks_workers(self, resources: Resources, waiting: int) -> bool:
        return waiting > sum(not worker.joined for worker in self._of(resources))

    def _fits(self, resources: Resources, beside: Iterable[Worker]) -> bool:
        """Whether a worker of this kind can be started beside these."""
        others = list(beside)
        used = sum(worker.resources.cores for worker in others)
        return used + resources.cores <= self._cores and (self._most is None or len(others) < self._most)

    def _make_room(self, first: Call, now: float) -> Iterator[Leave]:
        """Let workers of other kinds leave, until there will be room for one more of this kind."""
        staying = [worker for worker in self._workers.values() if not worker.leaving]
        claims = not self._of(first.resources) and now >= first.submitted + CLAIM_AFTER
        candidates = [
            worker for worker in staying if worker.resources != first.resources and self._is_after(worker, first)
        ]
        for worker in sorted(candidates, key=lambda worker: (bool(worker.calls), -worker.idle_since)):
            if self._fits(first.resources, staying):
                return
            if not worker.calls or claims:
                worker.leaving = True
                staying.remove(worker)
                yield Leave(worker)

    def _is_after(self, worker: Worker, first: Call) -> bool:
        """Whether nothing that waits for a worker like this has waited longer than this call."""
        return next(iter(self._waiting.get(worker.resources, {})), first.number) >= first.number

    def _send_home(self, now: float) -> Iterator[Leave]:
        for worker in self._workers.values():
            if worker.joined and worker.is_free and now >= worker.idle_since + self._idle_time:
                worker.leaving = True
                yield Leave(worker)
