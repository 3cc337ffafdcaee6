"""How well cores were used: gaps between attempts on a core, efficiency of nodes, and how long launches take."""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import NamedTuple

from msgspec import Struct

from qcg.pilotjob.journal import aggregates
from qcg.pilotjob.report.attempt_columns import AttemptColumns, read_columns
from qcg.pilotjob.report.run_report import Statistics
from qcg.pilotjob.report.summary import statistics_of
from qcg.pilotjob.report.timeline_builder import Builder, CoreLane
from qcg.pilotjob.report.timeline_lanes import Lane


class Gap(Struct, frozen=True):
    """A time in which a core had no attempt, between two attempts."""

    node: str
    core: int
    seconds: float
    at: float
    """When it began."""
    before: str
    """The attempt before it."""
    after: str


class SlowLaunch(Struct, frozen=True):
    name: str
    attempt: int
    seconds: float
    at: float
    """Time at which it was scheduled and its cores were free."""
    node: str


class CoreUse(Struct, frozen=True):
    """The use of a core between the begin of its first attempt and the end of its last one."""

    node: str
    core: int
    attempts: int
    busy_seconds: float
    gap_seconds: float
    efficiency: float | None
    """The part of the time in which it had an attempt, from 0 to 1; None without attempts."""


class NodeUse(Struct, frozen=True):
    """The use of the cores of a node."""

    node: str
    cores: int
    attempts: int
    busy_seconds: float
    """Core-seconds."""
    gap_seconds: float
    efficiency: float | None
    """Efficiency of its cores, each between its first and its last attempt."""
    utilisation: float | None
    """Core-seconds of attempts divided by the core-seconds from the first submission to the last event."""


class LaunchAnalysis(Struct, frozen=True):
    attempts: int
    """Attempts that have started, also repeated ones."""
    waits: Statistics | None
    """Seconds from submission to start, of jobs and iterations."""
    launches: Statistics | None
    """Seconds from the moment at which an attempt was scheduled and its cores were free to its start."""
    slowest_launches: list[SlowLaunch]
    gaps: Statistics | None
    """Seconds between two attempts on a core."""
    largest_gaps: list[Gap]
    efficiency: float | None
    """Efficiency of all cores, each between its first and its last attempt."""
    nodes: list[NodeUse]
    cores: list[CoreUse]


class _Gap(NamedTuple):
    seconds: float
    lane: CoreLane
    position: int
    """Of the attempt after the gap, in its lane."""


def analyse_launches(connection: sqlite3.Connection, most: int = 10) -> LaunchAnalysis:
    """The analysis of a registry, with at most `most` of the largest gaps and of the slowest launches."""
    return analysis_of(read_columns(connection), aggregates.times(connection).waited, most)


def analysis_of(columns: AttemptColumns, waits: Iterable[float], most: int = 10) -> LaunchAnalysis:
    known = [*columns.starts, *columns.ends]
    first, last = columns.submitted or min(known, default=0.0), max(known, default=0.0)
    lanes = Builder(columns, first, last).lanes()
    gaps = array("d", (seconds for lane in lanes for seconds in _gap_seconds(lane.lane)))
    launches, ready = _launches(columns, lanes)
    cores = [_core_use(lane) for lane in lanes]
    slowest = nlargest(most, range(len(launches)), key=launches.__getitem__)
    return LaunchAnalysis(
        attempts=len(columns.starts),
        waits=statistics_of(waits),
        launches=statistics_of(launches),
        slowest_launches=[
            SlowLaunch(
                columns.names.name(columns.places[attempt]),
                columns.numbers[attempt],
                launches[attempt],
                ready[attempt],
                columns.parts[columns.grants[attempt]][0].node,
            )
            for attempt in slowest
            if columns.parts[columns.grants[attempt]]
        ],
        gaps=statistics_of(gaps),
        largest_gaps=[_named(gap, columns) for gap in nlargest(most, _all_gaps(lanes), key=lambda gap: gap.seconds)],
        efficiency=_part(math.fsum(use.busy_seconds for use in cores), math.fsum(use.gap_seconds for use in cores)),
        nodes=_nodes(cores, _attempts_by_node(columns), last - first),
        cores=cores,
    )


def _gap_seconds(lane: Lane | None) -> Iterator[float]:
    """Times between the end of the attempt before and each start; none where attempts overlap."""
    if lane is not None and lane.starts:
        free = lane.ends[0]
        for start, end in zip(lane.starts[1:], lane.ends[1:], strict=True):
            yield max(start - free, 0.0)
            free = max(free, end)


def _all_gaps(lanes: list[CoreLane]) -> Iterator[_Gap]:
    for lane in lanes:
        for position, seconds in enumerate(_gap_seconds(lane.lane), 1):
            yield _Gap(seconds, lane, position)


def _named(gap: _Gap, columns: AttemptColumns) -> Gap:
    node, core, lane = gap.lane
    assert lane is not None
    before, after = lane.attempts[gap.position - 1 : gap.position + 1]
    return Gap(
        node,
        core,
        gap.seconds,
        lane.starts[gap.position] - gap.seconds,
        columns.names.name(columns.places[before]),
        columns.names.name(columns.places[after]),
    )


def _launches(columns: AttemptColumns, lanes: list[CoreLane]) -> tuple[array[float], array[float]]:
    """For each attempt, how long its launch took, and when it could begin."""
    ready = array("d", columns.scheduled)
    for lane in {id(one.lane): one.lane for one in lanes}.values():
        free = 0.0
        for attempt, end in zip(lane.attempts, lane.ends, strict=True) if lane is not None else ():
            # Attempts overlap if clocks differ: then the wait for the core is unknown.
            ready[attempt] = max(ready[attempt], min(free, columns.starts[attempt]))
            free = max(free, end)
    return array("d", (max(start - at, 0.0) for start, at in zip(columns.starts, ready, strict=True))), ready


def _core_use(lane: CoreLane) -> CoreUse:
    if lane.lane is None or not lane.lane.starts:
        return CoreUse(lane.node, lane.core, 0, 0.0, 0.0, None)
    gaps = math.fsum(_gap_seconds(lane.lane))
    busy = max(lane.lane.ends) - lane.lane.starts[0] - gaps
    return CoreUse(lane.node, lane.core, len(lane.lane.starts), busy, gaps, _part(busy, gaps))


def _attempts_by_node(columns: AttemptColumns) -> Counter[str]:
    counts: Counter[str] = Counter()
    for grant, number in Counter(columns.grants).items():
        counts.update({part.node: number for part in columns.parts[grant]})
    return counts


def _nodes(cores: list[CoreUse], attempts: Counter[str], span: float) -> list[NodeUse]:
    by_node: dict[str, list[CoreUse]] = {}
    for use in cores:
        by_node.setdefault(use.node, []).append(use)
    found = []
    for node, uses in by_node.items():
        busy, gaps = math.fsum(use.busy_seconds for use in uses), math.fsum(use.gap_seconds for use in uses)
        utilisation = busy / (span * len(uses)) if span > 0 else None
        found.append(NodeUse(node, len(uses), attempts[node], busy, gaps, _part(busy, gaps), utilisation))
    return found


def _part(busy: float, gaps: float) -> float | None:
    return busy / (busy + gaps) if busy + gaps > 0 else None
