"""Assigns calls to workers, and decides when workers are started and dismissed. No I/O, no clock.

Each worker has the resources of one kind of call, and takes many calls. Calls of a kind are assigned in the order of
submission. Where cores are short, the kind whose first call has waited longest comes first: idle workers of other kinds
are dismissed for it at once, and busy ones after their calls, when it has no worker at all and has waited a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Union

from msgspec import Struct, field

from qcg.pilotjob.executor_api.calls import Call, Resources

CLAIM_AFTER = 1.0
"""Seconds that a call without any worker of its kind waits before busy workers of other kinds are dismissed for it."""
SHORT = 0.005
"""Seconds. Calls of functions that have not taken longer are prefilled: their worker never waits between them."""
DECAY = 0.9
"""Factor by which the longest runtime of a function decays with each call."""
AHEAD = 4
"""The most calls of a worker."""
MOST_FUNCTIONS = 10_000
"""The most functions whose runtimes are remembered."""


class Worker(Struct, eq=False):
    id: str
    resources: Resources
    joined: bool = False
    leaving: bool = False
    calls: OrderedDict[int, Call] = field(default_factory=OrderedDict)
    """Calls that were sent to it and are not answered."""
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
    """Dismiss a worker after its calls."""

    worker: Worker


Action = Union[Send, Start, Leave]


class WorkerPool:
    """The workers and waiting calls of an executor."""

    def __init__(self, cores: int, max_workers: int | None, idle_time: float) -> None:
        self._cores = cores
        self._most = max_workers
        self._idle_time = idle_time
        self._workers: dict[str, Worker] = {}
        self._waiting: dict[Resources, OrderedDict[int, Call]] = {}
        self._longest: dict[int, float] = {}
        """Decaying maximum of the runtime of each function in seconds, by the hash of the pickled function."""
        self._started = 0

    # -- events ---------------------------------------------------------------------------------------------

    def add(self, call: Call) -> None:
        self._waiting.setdefault(call.resources, OrderedDict())[call.number] = call

    def drop(self, call: Call) -> bool:
        """Remove a waiting call; returns False when it is not waiting."""
        waiting = self._waiting.get(call.resources)
        return waiting is not None and waiting.pop(call.number, None) is not None

    def joined(self, worker_id: str, now: float) -> bool:
        """A worker is ready for calls; returns False for an unknown worker."""
        worker = self._workers.get(worker_id)
        if worker is None:
            return False
        worker.joined = True
        worker.idle_since = now
        return True

    def answered(self, worker_id: str, number: int, seconds: float, now: float) -> Call | None:
        """Return the call that a worker has answered."""
        worker = self._workers.get(worker_id)
        call = worker.calls.pop(number, None) if worker else None
        if worker is None or call is None:
            return None
        worker.idle_since = now
        if len(self._longest) >= MOST_FUNCTIONS:
            self._longest = {}
        function = hash(call.function)
        self._longest[function] = max(seconds, DECAY * self._longest.get(function, 0.0))
        return call

    def lost(self, worker_id: str, begun: int | None = None) -> list[Call]:
        """A worker has ended; returns its lost calls and, when no worker of its kind can be started, all waiting ones.

        `begun`: the number of the last call that it started, where that is known: later calls go to other workers.
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
        """Put calls back at the head of the queue."""
        for call in reversed(calls):
            waiting = self._waiting.setdefault(call.resources, OrderedDict())
            waiting[call.number] = call
            waiting.move_to_end(call.number, last=False)

    # -- actions -----------------------------------------------------------------------------------------------

    @property
    def workers(self) -> Iterable[Worker]:
        return self._workers.values()

    @property
    def is_idle(self) -> bool:
        """No call waits or runs."""
        return not any(self._waiting.values()) and not any(worker.calls for worker in self._workers.values())

    def waiting(self) -> list[Call]:
        return [call for calls in self._waiting.values() for call in calls.values()]

    def plan(self, now: float) -> list[Action]:
        """Return the next actions, which count as done."""
        actions: list[Action] = []
        for calls in self._waiting_by_age():
            first = next(iter(calls.values()))
            actions += self._assign(first.resources, calls)
        for calls in self._waiting_by_age():
            first = next(iter(calls.values()))
            actions += self._start(first.resources, len(calls))
            if self._lacks_workers(first.resources, len(calls)):
                actions += self._free_cores(first, now)
                if not self._of(first.resources):
                    break  # reserve cores that become free for this kind
        actions += self._dismiss_idle(now)
        return actions

    def dismiss_all(self) -> list[Leave]:
        staying = [worker for worker in self._workers.values() if not worker.leaving]
        for worker in staying:
            worker.leaving = True
        return [Leave(worker) for worker in staying]

    def next_plan_time(self, now: float) -> float | None:
        """The time to plan again when nothing happens."""
        free = [worker for worker in self._workers.values() if worker.joined and worker.is_free]
        times = [worker.idle_since + self._idle_time for worker in free]
        for calls in self._waiting_by_age():
            first = next(iter(calls.values()))
            if not self._of(first.resources) and first.submitted + CLAIM_AFTER > now:
                times.append(first.submitted + CLAIM_AFTER)
        return min(times, default=None)

    def _waiting_by_age(self) -> list[OrderedDict[int, Call]]:
        """The waiting calls of each kind; the kind with the oldest call first."""
        return sorted((calls for calls in self._waiting.values() if calls), key=lambda calls: next(iter(calls)))

    def _of(self, resources: Resources) -> list[Worker]:
        return [one for one in self._workers.values() if one.resources == resources and not one.leaving]

    def _assign(self, resources: Resources, calls: OrderedDict[int, Call]) -> Iterator[Send]:
        """Assign one call to each free worker, then prefill short calls evenly."""
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
        """Whether the calls of the worker and the next call are short."""
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
        """Whether the cores suffice for another worker of this kind."""
        others = list(beside)
        used = sum(worker.resources.cores for worker in others)
        return used + resources.cores <= self._cores and (self._most is None or len(others) < self._most)

    def _free_cores(self, first: Call, now: float) -> Iterator[Leave]:
        """Dismiss workers of other kinds until the cores suffice for one more of this kind."""
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
        """Whether no waiting call of the worker's kind has waited longer than this call."""
        return next(iter(self._waiting.get(worker.resources, {})), first.number) >= first.number

    def _dismiss_idle(self, now: float) -> Iterator[Leave]:
        for worker in self._workers.values():
            if worker.joined and worker.is_free and now >= worker.idle_since + self._idle_time:
                worker.leaving = True
                yield Leave(worker)
