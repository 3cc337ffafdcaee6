"""Reservations of the reference scheduler: slow and obvious.

Each group keeps nodes for the first job that does not fit, at the first time at which it would: the reference tries
every expected end, one after another, on copies of the nodes. Later jobs may use everything if they end by that time,
otherwise what is not kept.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import Amount, ExtraResources, ResourceRequest

if TYPE_CHECKING:
    from tests.core.reference import FreeNode, Unit

Choose = Callable[["list[FreeNode]", ResourceRequest], "list[tuple[FreeNode, int]] | None"]


class ExpectedEnd(NamedTuple):
    at: float
    by_limit: bool
    """Whether the attempt has a wall time."""
    grant: Grant


class Waiting(NamedTuple):
    """A job that does not fit."""

    name: str
    unit: Unit
    request: ResourceRequest
    wall_time: float


class SpareNode:
    """The free resources of a node at the time of a reservation, without the reserved ones."""

    def __init__(self, then: FreeNode, cores: int, request: ResourceRequest) -> None:
        extra = request.extra or ExtraResources()
        self.cores = len(then.cores) - cores
        self.needs_gpus = bool(request.gpus or extra.gpu_share)
        self.gpus = len(then.free_gpus()) - (request.gpus or 1)
        self.memory = then.memory - request.memory
        self.counters = {name: then.counters.get(name, 0) - number for name, number in extra.on_node}

    def visible(self, node: FreeNode) -> FreeNode:
        """The resources that are free now and not reserved."""
        seen = copy_of(node)
        seen.cores = node.cores[: max(self.cores, 0)]
        seen.memory = min(node.memory, max(self.memory, 0))
        if self.needs_gpus:
            left = node.free_gpus()[: max(self.gpus, 0)]
            seen.gpus = {gpu: 1000 if gpu in left else 0 for gpu in node.gpus}
        for name, number in self.counters.items():
            seen.counters[name] = min(node.counters.get(name, 0), max(number, 0))
        return seen

    def take(self, cores: int, request: ResourceRequest) -> None:
        extra = request.extra or ExtraResources()
        self.cores -= cores
        self.gpus -= 1 if extra.gpu_share else request.gpus
        self.memory -= request.memory
        for name, number in extra.on_node:
            if name in self.counters:
                self.counters[name] -= number


class Kept(NamedTuple):
    """The reservation of a job in one group."""

    job: Waiting
    at: float
    spare: dict[str, SpareNode]
    """The unreserved resources of each chosen node."""
    learned_until: float
    ended: int
    """Number of attempts that had ended when it was computed."""


class ReferenceBackfill:
    """The reservations of one reference scheduler."""

    def __init__(self, nodes: list[FreeNode], choose: Choose) -> None:
        self._nodes = nodes
        self._names = list(dict.fromkeys(node.spec.group for node in nodes))
        self._choose = choose
        self._kept: dict[str, Kept] = {}
        self._waiting: dict[str, list[Waiting]] = {}
        self._decided: dict[str, Kept | None] = {}

    @property
    def groups(self) -> dict[str, list[FreeNode]]:
        """The nodes that are not drained."""
        nodes = [node for node in self._nodes if not node.drained]
        return {name: [node for node in nodes if node.spec.group == name] for name in self._names}

    def nodes_changed(self) -> None:
        """Forget reservations that were computed with other nodes."""
        self._kept.clear()

    def begin(self, now: float, left: float, ends: Callable[[], list[ExpectedEnd]], ended: int) -> None:
        """Begin a pass."""
        self._now, self._left, self._ends, self._ended = now, left, ends, ended
        self._waiting = {name: [] for name in self.groups}
        self._decided = {}

    def add(self, job: Waiting) -> None:
        for name in self._groups_of(job.request):
            self._waiting[name].append(job)

    def choose(self, request: ResourceRequest, duration: float, avoided: str = "") -> list[tuple[FreeNode, int]] | None:
        """The nodes that a job gets now, if it delays no job with a reservation: as the job sees them, without what is
        reserved. The node that the job avoids is left out."""
        names = sorted(self._groups_of(request), key=lambda name: -sum(len(node.cores) for node in self.groups[name]))
        for name in names:
            nodes = [node for node in self.groups[name] if node.spec.name != avoided]
            reserved = self._reserved(name)
            if reserved is None or self._now + duration <= reserved.at:
                chosen = self._choose(nodes, request)
                if chosen is not None and reserved is None:
                    self._kept.pop(name, None)
            else:
                chosen = self._choose_beside(reserved, nodes, request)
            if chosen is not None:
                return chosen
        return None

    def leaves_counters(self, request: ResourceRequest, free: dict[str, int]) -> bool:
        """Whether enough counters of the run stay free for the jobs that have a reservation."""
        wanted = dict(request.extra.of_run) if request.extra is not None else {}
        if not wanted:
            return True
        kept = [reserved for name in self.groups if (reserved := self._reserved(name)) is not None]
        needed = [(reserved.job.request.extra or ExtraResources()).of_run for reserved in kept]
        return all(
            free[name] - number >= sum(dict(of_run).get(name, 0) for of_run in needed)
            for name, number in wanted.items()
        )

    def _choose_beside(
        self, reserved: Kept, nodes: list[FreeNode], request: ResourceRequest
    ) -> list[tuple[FreeNode, int]] | None:
        """The resources of a job that are still free at the time of the reservation."""
        visible = []
        for node in nodes:
            spare = reserved.spare.get(node.spec.name)
            visible.append(node if spare is None else spare.visible(node))
        chosen = self._choose(visible, request)
        if chosen is None:
            return None
        for seen, count in chosen:
            if seen.spec.name in reserved.spare:
                reserved.spare[seen.spec.name].take(count, request)
        return chosen

    def _reserved(self, name: str) -> Kept | None:
        if name not in self._decided:
            job = self._first(name)
            if job is None:
                return None
            self._decide(name, job)
        return self._decided[name]

    def _decide(self, name: str, job: Waiting) -> None:
        names = [other for other in self._groups_of(job.request) if other == name or self._first(other) == job]
        names = [other for other in names if other not in self._decided]
        for other in names:
            kept = self._kept.get(other)
            if (
                kept is None
                or kept.job != job
                or kept.ended != self._ended
                or self._now >= min(kept.at, kept.learned_until)
            ):
                self._kept[other] = self._compute(other, job)
            self._decided[other] = None
        best = min([self._kept[other] for other in names], key=lambda kept: kept.at)
        chosen = next(other for other in names if self._kept[other] is best)
        if best.at < self._now + self._left and best.at - self._now + job.wall_time <= self._left:
            self._decided[chosen] = best

    def _first(self, name: str) -> Waiting | None:
        for job in self._waiting[name]:
            idle = [idle_copy(node) for node in self.groups[name]]
            if self._choose(idle, job.request) is not None:
                return job
        return None

    def _groups_of(self, request: ResourceRequest) -> list[str]:
        return [name for name in self.groups if name == request.host or (request.host == "*" and name)]

    def _compute(self, name: str, job: Waiting) -> Kept:
        nodes = self.groups[name]
        unknown = Kept(job, math.inf, {}, math.inf, self._ended)
        if not nodes or nodes[0].spec.slots:
            return unknown
        known = [end for end in self._ends() if end.by_limit or end.at > self._now]
        wanted = least_of(job.request)
        for at in sorted({max(end.at, self._now) for end in known}):
            later = [nodes_at(node, known, at) for node in nodes]
            chosen = self._choose(later, wanted)
            if chosen is not None:
                break
        else:
            return unknown
        if job.request.nodes is None and not job.request.one_node:
            needed = self._of_cores(nodes, later, wanted)
            relied = set(self.groups[name])
        else:
            needed = self._of_nodes(nodes, known, at, wanted)
            relied = {node for node in nodes if node.spec.name in needed}
        spare = {
            node.spec.name: SpareNode(node, needed[node.spec.name], wanted)
            for node in later
            if node.spec.name in needed
        }
        names = {node.spec.name for node in relied}
        learned = [
            end.at
            for end in known
            if not end.by_limit and end.at <= at and names & {part.node for part in end.grant.parts}
        ]
        return Kept(job, at, spare, min(learned, default=math.inf), self._ended)

    def _of_cores(self, nodes: list[FreeNode], later: list[FreeNode], wanted: ResourceRequest) -> dict[str, int]:
        """Cores that are not free yet, from the last node on; then free ones."""
        assert wanted.cores is not None
        missing = wanted.cores.least
        counts: dict[str, int] = {}
        for busy in (True, False):
            for node, then in reversed(list(zip(nodes, later, strict=True))):
                available = len(then.cores) - len(node.cores) if busy else len(node.cores)
                count = min(available, missing)
                if count:
                    counts[node.spec.name] = counts.get(node.spec.name, 0) + count
                    missing -= count
        return counts

    def _of_nodes(
        self, nodes: list[FreeNode], known: list[ExpectedEnd], at: float, wanted: ResourceRequest
    ) -> dict[str, int]:
        """Of the nodes that are ready by that time, the latest ones."""
        one = replace(wanted, nodes=Amount(1, 1))
        times = []
        for number, node in enumerate(nodes):
            ready = [
                time
                for time in sorted({self._now, *[max(end.at, self._now) for end in known]})
                if self._choose([nodes_at(node, known, time)], one)
            ]
            if ready and ready[0] <= at:
                times.append((ready[0], number))
        times.sort(reverse=True)
        count = 1 if wanted.nodes is None else wanted.nodes.least
        needed = {}
        for _, number in times[:count]:
            cores = len(nodes[number].spec.cores) if wanted.cores is None else wanted.cores.least
            needed[nodes[number].spec.name] = cores
        return needed


def nodes_at(node: FreeNode, known: list[ExpectedEnd], at: float) -> FreeNode:
    """A node as it is expected at that time, without the attempts that have ended by then."""
    then = copy_of(node)
    for end in known:
        extra = end.grant.extra or ExtraResources()
        for part in end.grant.parts if end.at <= at else ():
            if part.node == node.spec.name:
                then.cores = sorted([*then.cores, *part.cores])
                then.memory += part.memory
                for gpu in part.gpus:
                    then.gpus[gpu] += extra.gpu_share or 1000
                for name, number in extra.on_node:
                    then.counters[name] += number
    return then


def copy_of(node: FreeNode) -> FreeNode:
    made = copy.copy(node)
    made.gpus, made.counters = dict(node.gpus), dict(node.counters)
    return made


def idle_copy(node: FreeNode) -> FreeNode:
    idle = copy.copy(node)
    idle.cores, idle.gpus = list(node.spec.cores), dict.fromkeys(node.spec.gpus, 1000)
    idle.memory, idle.counters = node.spec.memory, dict(node.spec.counters)
    return idle


def least_of(request: ResourceRequest) -> ResourceRequest:
    """The smallest request within the ranges of this one."""
    cores, nodes = request.cores, request.nodes
    return replace(
        request,
        cores=None if cores is None else Amount(cores.least, cores.least),
        nodes=None if nodes is None else Amount(nodes.least, nodes.least),
    )
