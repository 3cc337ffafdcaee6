"""Forecast: when nodes will have enough free for a request, by the wall times of the attempts that run on them.

An attempt with a wall time ends by then: its host ends it. An attempt without one is expected to take no longer than
`MARGIN` times the longest attempt with the same request so far, once `ENOUGH_ENDED` of them have succeeded. Of n
durations in random order the next one is the longest with a chance of 1 in n + 1, whatever their distribution is, so
the longest one of ten is exceeded once in eleven times, and more rarely with the margin. The longest one is also a
single number; a quantile would need the durations themselves. An attempt that has run for longer than that has an
unknown end.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.feasibility import least
from qcg.pilotjob.core.node_group import NodeGroup
from qcg.pilotjob.core.queue import Durations, entry_of
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.core.resources import ExpectedEnd, Node, Spare
from qcg.pilotjob.description.model import WHOLE_GPU, ExtraResources, ResourceRequest

ANY = 1 << 30
"""Number of resources that are not needed."""
ENOUGH_ENDED = 10
"""Number of attempts with the same request that must have succeeded before durations are learned from them."""
MARGIN = 1.5
"""Expected duration of an attempt without a wall time, as a multiple of the longest one with the same request."""


class Forecast(NamedTuple):
    """The earliest time at which a request fits into a group of nodes, and the resources it needs there."""

    at: float
    """Infinite if the time is not known."""
    last: Attempt | None = None
    """The attempt whose end is the last one to be awaited."""
    node: str = ""
    """Node of this attempt that is awaited."""
    spare: Mapping[Node, Spare] = MappingProxyType({})
    """The nodes chosen for the request, each with its free and unneeded resources at that time."""
    learned_until: float = math.inf
    """First end among those awaited that is expected only from the durations of earlier attempts."""
    cost: int = 0
    """Number of nodes and expected ends that were examined."""


UNKNOWN = Forecast(math.inf)


def expected_duration(durations: Durations) -> float:
    """Seconds that an attempt without a wall time is expected to take at most; infinite if unknown."""
    return MARGIN * durations.slowest if durations.succeeded >= ENOUGH_ENDED else math.inf


def forecast(core: CoreState, group: NodeGroup, request: ResourceRequest) -> Forecast:
    """When the request fits into the group, if nothing else is started there that would delay it.

    A range is expected to be granted its minimum.
    """
    if any(node.spec.slots for node in group.nodes):
        return UNKNOWN  # jobs wait in the batch system of the host, for an unknown time
    ends = [(node, _expected_ends(core, node)) for node in group.nodes if node.available]
    if request.nodes is None and not request.one_node:
        return _cores_anywhere(core.now, ends, least(request), group.free_cores)
    return _on_nodes(core.now, ends, request)


def _expected_ends(core: CoreState, node: Node) -> Sequence[ExpectedEnd]:
    """The ends of attempts on a node that are expected, the earliest first."""
    if node.expected_ends is not None and node.estimates == core.estimates:
        return node.expected_ends
    if node.contested:
        return ()
    found = []
    lasting = True
    name = node.spec.name
    for attempt in core.attempts_on.get(name, ()):
        entry = entry_of(attempt.job, attempt.position)
        lane = attempt.lane
        by_limit = entry.wall_time > 0
        duration = entry.wall_time if by_limit else expected_duration(entry.line.durations)
        lasting = lasting and duration < math.inf and attempt.started > 0 and lane is None
        if (lane is not None and len(lane.attempts) > 1) or attempt in core.orphaned:
            continue
        if duration < math.inf:
            # The clock of its host may be ahead.
            started = min(attempt.started, attempt.started_by)
            since = max(started, attempt.scheduled if lane is None else lane.since)
            part = attempt.grant.parts[0]
            if part.node != name:
                part = next(part for part in attempt.grant.parts if part.node == name)
            found.append(ExpectedEnd(since + duration, by_limit, part, attempt))
    found.sort(key=_end_of)
    if lasting:
        node.expected_ends, node.estimates = found, core.estimates
    return found


def _end_of(expected: ExpectedEnd) -> float:
    return expected.end


def _is_known(expected: ExpectedEnd, now: float) -> bool:
    """Whether the end is still to be expected. An attempt that has passed its wall time is being ended."""
    return expected.by_limit or expected.end > now


def _cores_anywhere(now: float, nodes: list[tuple[Node, Sequence[ExpectedEnd]]], wanted: int, free: int) -> Forecast:
    missing = wanted - free
    cost = len(nodes)
    learned_until = math.inf
    last: ExpectedEnd | None = None
    for expected in heapq.merge(*[ends for _, ends in nodes if ends], key=_end_of):
        cost += 1
        if not _is_known(expected, now):
            continue
        if not expected.by_limit:
            learned_until = min(learned_until, expected.end)
        last = expected
        missing -= len(expected.part.cores)
        if missing <= 0:
            break
    if missing > 0 or last is None:
        return Forecast(math.inf, cost=cost)
    at = max(last.end, now)
    # Cores that are not free yet come first, so that cores that are free now can be used beyond that time.
    later = {node: _released_cores(ends, at, now) for node, ends in reversed(nodes)}
    needed: dict[Node, int] = {}
    for node, count in [*later.items(), *[(node, node.nfree) for node in later]]:
        count = min(count, wanted)
        if count:
            needed[node] = needed.get(node, 0) + count
            wanted -= count
    spare = {node: Spare(node.nfree + later[node] - count, ANY, ANY, True, {}) for node, count in needed.items()}
    return Forecast(at, last.attempt, last.part.node, spare, learned_until, cost)


def _released_cores(ends: Sequence[ExpectedEnd], at: float, now: float) -> int:
    """The number of cores that become free on a node by some time."""
    return sum([len(expected.part.cores) for expected in ends if expected.end <= at and _is_known(expected, now)])


def _on_nodes(now: float, nodes: list[tuple[Node, Sequence[ExpectedEnd]]], request: ResourceRequest) -> Forecast:
    cost = len(nodes)
    times: list[tuple[float, int, ExpectedEnd | None]] = []
    for number, (node, ends) in enumerate(nodes):
        cost += len(ends)
        at, last = _ready_at(node, ends, request, now)
        if at < math.inf:
            times.append((at, number, last))
    times.sort(key=_first)
    count = 1 if request.nodes is None else request.nodes.least
    if len(times) < count:
        return Forecast(math.inf, cost=cost)
    at = times[count - 1][0]
    # Nodes that become ready last are chosen, so that nodes with free cores now can be used beyond that time.
    ready = [found for found in times if found[0] <= at]
    ready.sort(key=_latest_first)
    spare: dict[Node, Spare] = {}
    learned_until = math.inf
    for _, number, _ in ready[:count]:
        node, ends = nodes[number]
        then = _Future(node, request)
        for expected in ends:
            if expected.end <= at and _is_known(expected, now):
                then.add(expected)
                if not expected.by_limit:
                    learned_until = min(learned_until, expected.end)
        spare[node] = then.spare()
    last = next((last for _, _, last in ready if last is not None), None)
    if last is None:
        return Forecast(math.inf, cost=cost)
    return Forecast(at, last.attempt, last.part.node, spare, learned_until, cost)


def _first(found: tuple[float, int, ExpectedEnd | None]) -> float:
    return found[0]


def _latest_first(found: tuple[float, int, ExpectedEnd | None]) -> tuple[float, int]:
    return -found[0], -found[1]


def _ready_at(
    node: Node, ends: Sequence[ExpectedEnd], request: ResourceRequest, now: float
) -> tuple[float, ExpectedEnd | None]:
    """When a node has enough for the request, and the end that it waits for; None if it has enough now."""
    then = _Future(node, request)
    if then.is_enough():
        return now, None
    for expected in ends:
        if _is_known(expected, now):
            then.add(expected)
            if then.is_enough():
                return max(expected.end, now), expected
    return math.inf, None


class _Future:
    """Free resources of a node after some attempts end, as far as a request needs them."""

    __slots__ = ("cores", "counters", "extra", "gpus", "gpus_taken", "least", "memory", "request")

    def __init__(self, node: Node, request: ResourceRequest) -> None:
        self.request = request
        self.extra = request.extra or ExtraResources()
        self.least = len(node.spec.cores) if request.cores is None else request.cores.least
        self.cores = node.nfree
        self.gpus = len(node.gpus)
        self.memory = node.memory
        self.gpus_taken = dict(node.gpus_taken) if request.gpus or self.extra.gpu_share else {}
        self.counters = {name: node.counters.get(name, 0) for name, _ in self.extra.on_node}

    def add(self, expected: ExpectedEnd) -> None:
        part, extra = expected.part, expected.attempt.grant.extra
        self.cores += len(part.cores)
        self.memory += part.memory
        for gpu in part.gpus if self.gpus_taken else ():
            taken = self.gpus_taken.pop(gpu) - (extra.gpu_share or WHOLE_GPU if extra is not None else WHOLE_GPU)
            if taken > 0:
                self.gpus_taken[gpu] = taken
            else:
                self.gpus += 1
        for name, number in extra.on_node if extra is not None else ():
            if name in self.counters:
                self.counters[name] += number

    def is_enough(self) -> bool:
        request, extra = self.request, self.extra
        if not 0 < self.least <= self.cores or self.gpus < request.gpus or self.memory < request.memory:
            return False
        if extra.gpu_share and not (
            self.gpus or min(self.gpus_taken.values(), default=WHOLE_GPU) + extra.gpu_share <= WHOLE_GPU
        ):
            return False
        return all(self.counters[name] >= number for name, number in extra.on_node)

    def spare(self) -> Spare:
        """Resources left after the request. For a part of a GPU a whole one is kept, or all parts if none is free as a
        whole."""
        request, extra = self.request, self.extra
        needs_gpus = bool(request.gpus or extra.gpu_share)
        return Spare(
            self.cores - self.least,
            self.gpus - (request.gpus or 1) if needs_gpus else ANY,
            self.memory - request.memory if request.memory else ANY,
            not needs_gpus,
            {name: self.counters[name] - number for name, number in extra.on_node},
        )
