"""Remaining work by resource request: waiting and running attempts, their durations, how many fit at once.

The cost depends on the number of distinct requests and of different nodes: at most `MOST_SEEN` running attempts are
examined."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import NamedTuple

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.node_group import Target
from qcg.pilotjob.core.queue import Durations, QueueLine, entry_of
from qcg.pilotjob.core.resources import Node
from qcg.pilotjob.description.model import WHOLE_GPU, ResourceRequest

MOST_SEEN = 2000
"""Running attempts that are examined. If there are more, the others count as their average."""
MOST_WITHOUT_WORK = 50
"""Requests that nothing waits for whose durations are known: jobs of unknown duration count as their average."""
Shape = tuple[int, int, int]
"""Cores, GPUs and memory in MiB of a node."""


class Load(NamedTuple):
    """Attempts with the same request that wait or run."""

    waiting: int
    places: float
    """The number of attempts that fit into the resources at once; 0 if none does."""
    mean: float | None
    """Average duration in seconds; None if none has succeeded."""
    slowest: float = 0.0
    ended: int = 0
    """Number of attempts in the average."""
    running: int = 0
    remaining: float = 0.0
    """Seconds that all running attempts together are expected to run on."""
    longest: float = 0.0
    """The longest remaining time of one attempt, in seconds."""
    elapsed: float = 0.0
    """Seconds that all running attempts together have run so far."""


class _Running:
    """Attempts with one request that run."""

    __slots__ = ("elapsed", "line", "longest", "number", "remaining")

    def __init__(self, line: QueueLine) -> None:
        self.line = line
        self.number = 0
        self.remaining = self.longest = self.elapsed = 0.0

    def add(self, elapsed: float, durations: Durations) -> None:
        # An attempt far beyond the average is unlike the ended ones: it is expected to take as long again beyond it.
        left = max(abs(durations.mean - elapsed), 0.1 * elapsed)
        self.number += 1
        self.remaining += left
        self.elapsed += elapsed
        self.longest = max(self.longest, left)


def workload(core: CoreState, in_lines: list[tuple[QueueLine, int]], now: float) -> list[Load]:
    """Waiting work in queue lines, and running attempts. Other requests with known durations follow without work."""
    shapes = {
        group.name: Counter([_shape(node) for node in group.nodes if node.available]) for group in core.pool.groups
    }
    running = _running(core, now)
    waiting: dict[ResourceRequest, int] = {}
    lines: dict[ResourceRequest, QueueLine] = {request: found.line for request, found in running.items()}
    for line, number in in_lines:
        waiting[line.request] = waiting.get(line.request, 0) + number
        lines.setdefault(line.request, line)
    loads = []
    for request, line in lines.items():
        durations, runs = line.durations, running.get(request)
        places = _places_in(core, request, line.target, shapes)
        load = Load(
            waiting.get(request, 0),
            places,
            durations.mean if durations.succeeded else None,
            durations.slowest,
            durations.succeeded,
        )
        if runs is not None:
            load = load._replace(
                running=runs.number, remaining=runs.remaining, longest=runs.longest, elapsed=runs.elapsed
            )
        loads.append(load)
    for request, durations in islice(core.queue.durations.items(), MOST_WITHOUT_WORK):
        if request not in lines and durations.succeeded:
            places = _places_in(core, request, core.pool.target(request), shapes)
            loads.append(Load(0, places, durations.mean, durations.slowest, durations.succeeded))
    return loads


def _running(core: CoreState, now: float) -> dict[ResourceRequest, _Running]:
    found: dict[ResourceRequest, _Running] = {}
    seen = 0
    for attempt in islice(core.attempts.values(), MOST_SEEN):
        seen += 1
        line = entry_of(attempt.job, attempt.position).line
        runs = found.get(line.request)
        if runs is None:
            runs = found[line.request] = _Running(line)
        runs.add(max(now - attempt.started, 0.0) if attempt.started else 0.0, line.durations)
    scale = len(core.attempts) / seen if seen else 1.0
    for runs in found.values():
        runs.number = round(runs.number * scale)
        runs.remaining *= scale
        runs.elapsed *= scale
    return found


def _shape(node: Node) -> Shape:
    return len(node.spec.cores), len(node.spec.gpus), node.spec.memory


def _places_in(core: CoreState, request: ResourceRequest, target: Target, shapes: dict[str, Counter[Shape]]) -> float:
    """The number of attempts with a request that fit where they can run, if nothing else does."""
    return sum([_places(core, request, shapes[group.name]) for group in target.groups if group.name in shapes])


def _places(core: CoreState, request: ResourceRequest, shapes: Counter[Shape]) -> float:
    """The number of attempts with a request that fit into a group of idle nodes."""
    cores = request.cores
    extra = request.extra
    limits = []
    if request.nodes is not None or request.one_node or request.gpus or request.memory or (extra and extra.gpu_share):
        on_node = sum([number * _on_node(request, shape) for shape, number in shapes.items()])
        limits.append(on_node / request.nodes.least if request.nodes is not None else float(on_node))
    else:
        assert cores is not None
        total = sum([shape[0] * number for shape, number in shapes.items()])
        wanted = total if cores.most is None else min(cores.most, total)
        limits.append(float(total // max(wanted, cores.least)) if total else 0.0)
    for name, number in extra.of_run if extra is not None else ():
        limits.append(core.pool.counters.totals.get(name, 0) // number)
    return min(limits)


def _on_node(request: ResourceRequest, shape: Shape) -> int:
    """The number of parts of attempts with a request that fit on an idle node."""
    cores, gpus, memory = shape
    if request.cores is None:
        fit = 1
    else:
        wanted = cores if request.cores.most is None else max(min(request.cores.most, cores), request.cores.least)
        fit = cores // wanted if wanted else 0
    if request.gpus:
        fit = min(fit, gpus // request.gpus)
    if request.memory and memory:
        fit = min(fit, memory // request.memory)
    if request.extra is not None and request.extra.gpu_share:
        fit = min(fit, gpus * (WHOLE_GPU // request.extra.gpu_share))
    return fit
