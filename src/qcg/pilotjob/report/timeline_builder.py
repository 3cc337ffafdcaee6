"""Sorts the attempts of a run into lanes, one for each core, and loads, one for each node."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain, compress, repeat
from operator import not_
from typing import NamedTuple

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal.metadata import NodeSize
from qcg.pilotjob.report.attempt_columns import AttemptColumns, natural_order
from qcg.pilotjob.report.timeline_lanes import Lane, Load

FAILED = int(State.FAILED)


class CoreLane(NamedTuple):
    node: str
    core: int
    lane: Lane | None
    """None when no attempt has run there."""


class NodeLoad(NamedTuple):
    node: str
    cores: int
    current: bool
    """Whether it is a node of the last manager."""
    load: Load | None
    """None when no attempt has run there."""


class Builder:
    def __init__(self, columns: AttemptColumns, first: float, last: float) -> None:
        """`first`: the origin of loads. `last`: the end of attempts without an end."""
        self._columns = columns
        self._first = first
        self._starts = columns.starts
        after = map(math.nextafter, columns.starts, repeat(math.inf))
        self._ends = array("d", map(max, (end or last for end in columns.ends), after))
        """Ends of attempts; each is after the start of its attempt."""
        self._by_grant: list[array[int]] = [array("I") for _ in columns.parts]
        for attempt, grant in enumerate(columns.grants):
            self._by_grant[grant].append(attempt)
        self._grants_of: dict[tuple[str, int], list[int]] = defaultdict(list)
        for grant, parts in enumerate(columns.parts):
            for part in parts:
                for core in part.cores:
                    self._grants_of[part.node, core].append(grant)
        order = {node.name: number for number, node in enumerate(columns.nodes)}
        found = _cores_of_nodes(self._grants_of, columns.nodes)
        names = sorted(found, key=lambda name: (order.get(name, len(order)), natural_order(name)))
        self._current = order.keys()
        self._cores = {name: sorted(found[name]) for name in names}

    def lanes(self) -> list[CoreLane]:
        shared: dict[tuple[int, ...], Lane] = {}
        lanes = []
        for key in [(node, core) for node, cores in self._cores.items() for core in cores]:
            grants = tuple(self._grants_of.get(key, ()))
            if grants and grants not in shared:  # cores that were always granted together have one lane
                shared[grants] = self._lane([self._by_grant[grant] for grant in grants])
            lanes.append(CoreLane(*key, shared.get(grants)))
        return lanes

    def nodes(self) -> list[NodeLoad]:
        attempts: dict[str, array[int]] = defaultdict(lambda: array("I"))
        counts: dict[str, array[int]] = defaultdict(lambda: array("I"))
        for parts, granted in zip(self._columns.parts, self._by_grant, strict=True):
            for part in parts:
                attempts[part.node].extend(granted)
                counts[part.node].extend(repeat(len(part.cores), len(granted)))
        return [
            NodeLoad(
                name,
                len(cores),
                name in self._current,
                self._load(attempts[name], counts[name]) if attempts.get(name) else None,
            )
            for name, cores in self._cores.items()
        ]

    def whole(self) -> Load:
        """The load of all nodes together."""
        cores = [sum(len(part.cores) for part in parts) for parts in self._columns.parts]
        counts = array("I", map(cores.__getitem__, self._columns.grants))
        failed = compress(self._ends, map(FAILED.__eq__, self._columns.states))
        return Load.of(self._starts, self._ends, counts, array("d", failed), self._first)

    def running_ends(self) -> array[float]:
        """The assumed ends of attempts without an end."""
        return array("d", sorted(compress(self._ends, map(not_, self._columns.ends))))

    def _lane(self, attempts: list[array[int]]) -> Lane:
        ordered = array("I", sorted(chain.from_iterable(attempts), key=self._starts.__getitem__))
        return Lane(ordered, *self._times(ordered))

    def _load(self, attempts: array[int], cores: array[int]) -> Load:
        starts, ends, failed = self._times(attempts)
        return Load.of(starts, ends, cores, failed, self._first)

    def _times(self, attempts: array[int]) -> tuple[array[float], array[float], array[float]]:
        """Starts, ends, and ends of failed attempts."""
        starts, ends = (array("d", map(column.__getitem__, attempts)) for column in (self._starts, self._ends))
        states = map(self._columns.states.__getitem__, attempts)
        return starts, ends, array("d", compress(ends, map(FAILED.__eq__, states)))


def _cores_of_nodes(used: Iterable[tuple[str, int]], nodes: list[NodeSize]) -> dict[str, set[int]]:
    """Cores of all nodes; idle ones too where cores are numbered from 0."""
    found: dict[str, set[int]] = defaultdict(set)
    for node, core in used:
        found[node].add(core)
    for size in nodes:
        if found[size.name] <= set(range(size.cores)):
            found[size.name].update(range(size.cores))
    return found
