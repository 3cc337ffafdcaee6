"""A slow and obvious reference scheduler: it keeps plain lists and visits every job in every pass.

It follows the documented rules: first come, first served; a job that does not fit is overtaken; a range takes
as much as is free. Cores are taken from the first nodes, lowest numbers first.
"""

from __future__ import annotations

import math

from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import Amount, JobDescription, ResourceRequest

FINAL = ("SUCCEED", "FAILED", "CANCELED", "OMITTED")

Unit = int | None
"""An index, or None for a job without iterations."""


class FreeNode:
    """What is free of one node."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.cores = list(spec.cores)
        self.gpus = list(spec.gpus)
        self.memory = spec.memory

    def offers(self, cores: int, request: ResourceRequest) -> bool:
        return len(self.cores) >= cores and len(self.gpus) >= request.gpus and self.memory >= request.memory


class ReferenceJob:
    def __init__(self, description: JobDescription, requests: list[ResourceRequest]) -> None:
        iteration = description.iteration
        self.name = description.name
        self.after = description.after
        self.units: list[Unit] = [None] if iteration is None else list(iteration.indices())
        self.wall_time = description.wall_time or 0.0
        self.requests = dict(zip(self.units, requests, strict=True))
        self.states: dict[Unit, str] = dict.fromkeys(self.units, "QUEUED")

    @property
    def state(self) -> str:
        states = set(self.states.values())
        if not states <= set(FINAL):
            return "unfinished"
        return next(state for state in ("FAILED", "CANCELED", "OMITTED", "SUCCEED") if state in states)


class Reference:
    def __init__(self, specs: list[NodeSpec]) -> None:
        self.specs = specs
        self.nodes = [FreeNode(spec) for spec in specs]
        self.jobs: list[ReferenceJob] = []
        self.grants: dict[tuple[str, Unit], Grant] = {}

    def submit(self, descriptions: list[JobDescription]) -> None:
        for description in descriptions:
            job = ReferenceJob(description, requests_of(description, self.specs))
            self.jobs.append(job)
            idle = [FreeNode(spec) for spec in self.specs]
            if any(choose(idle, request) is None for request in job.requests.values()):
                job.states = dict.fromkeys(job.units, "FAILED")
        self._omit()

    def schedule(self, left: float) -> list[tuple[str, Unit, Grant]]:
        """Everything that is started now, in order; it may take so many seconds."""
        started = []
        for job in self.jobs:
            for unit in job.units:
                waits = any(state != "SUCCEED" for state in self._prerequisites(job, unit))
                if job.states[unit] != "QUEUED" or waits or job.wall_time > left or left <= 0:
                    continue
                request = job.requests[unit]
                chosen = choose(self.nodes, request)
                if chosen is not None:
                    grant = Grant(tuple([self._take(node, count, request) for node, count in chosen]))
                    self.grants[job.name, unit] = grant
                    job.states[unit] = "SCHEDULED"
                    started.append((job.name, unit, grant))
        return started

    def end(self, name: str, unit: Unit, state: str) -> None:
        """Record the end of an attempt or the cancellation of a waiting job."""
        grant = self.grants.pop((name, unit), Grant(()))
        for part in grant.parts:
            node = next(node for node in self.nodes if node.spec.name == part.node)
            node.cores = sorted([*node.cores, *part.cores])
            node.gpus = sorted([*node.gpus, *part.gpus])
            node.memory += part.memory
        self._find(name).states[unit] = state
        self._omit()

    def cancel(self, name: str) -> None:
        """All of a job that has not started."""
        job = self._find(name)
        for unit in job.units:
            if job.states[unit] == "QUEUED":
                job.states[unit] = "CANCELED"
        self._omit()

    def states(self) -> dict[str, tuple[str, list[str]]]:
        return {job.name: (job.state, list(job.states.values())) for job in self.jobs}

    def _find(self, name: str) -> ReferenceJob:
        return next(job for job in self.jobs if job.name == name)

    def _omit(self) -> None:
        """Omit jobs with failed prerequisites until none is left."""
        changed = True
        while changed:
            changed = False
            for job in self.jobs:
                for unit in job.units:
                    states = self._prerequisites(job, unit)
                    if job.states[unit] == "QUEUED" and {"FAILED", "CANCELED", "OMITTED"} & set(states):
                        job.states[unit] = "OMITTED"
                        changed = True

    def _prerequisites(self, job: ReferenceJob, unit: Unit) -> list[str]:
        """The states of all that one iteration waits for."""
        states = []
        for entry in job.after:
            name, _, index = entry.partition(":")
            other = self._find(name)
            if index == "${it}":
                states.append(other.states[unit])
            elif index:
                states.append(other.states[int(index)])
            else:
                states.append(other.state)
        return states

    def _take(self, node: FreeNode, count: int, request: ResourceRequest) -> NodePart:
        part = NodePart(node.spec.name, tuple(node.cores[:count]), tuple(node.gpus[: request.gpus]), request.memory)
        node.cores = node.cores[count:]
        node.gpus = node.gpus[request.gpus :]
        node.memory -= request.memory
        return part


def requests_of(description: JobDescription, specs: list[NodeSpec]) -> list[ResourceRequest]:
    """What each iteration asks for; when there is too little to share, what it needs at least."""
    sharing, request = description.sharing, description.request
    count = 1 if description.iteration is None else len(description.iteration)
    if sharing is None:
        return [request] * count
    of_cores = sharing.of == "cores"
    total = sum(len(spec.cores) for spec in specs) if of_cores else len(specs)
    shared = request.cores if of_cores else request.nodes
    assert shared is not None
    if total // (sharing.parts or count if sharing.name == "split-into" else 1) < shared.least:
        amounts = [Amount(shared.least, shared.least)] * count
    elif sharing.name == "split-into":
        amounts = [Amount(shared.least, total // (sharing.parts or count))] * count
    else:
        amounts = [Amount(size, size) for size in maximum_iters(count, total, shared.least)]
    extras = request.gpus, request.memory, request.one_node
    if of_cores:
        return [ResourceRequest(amount, request.nodes, *extras) for amount in amounts]
    return [ResourceRequest(request.cores, amount, *extras) for amount in amounts]


def maximum_iters(count: int, total: int, least: int) -> list[int]:
    """What each of `count` iterations gets: as few rounds as possible, and everything in each of them."""
    sizes: list[int] = []
    rounds = math.ceil(count / (total // least))
    for rounds_left in range(rounds, 0, -1):
        sharers = math.ceil((count - len(sizes)) / rounds_left)
        left = total
        for sharers_left in range(sharers, 0, -1):
            size = left // sharers_left
            sizes.append(size)
            left -= size
    return sizes


def choose(nodes: list[FreeNode], request: ResourceRequest) -> list[tuple[FreeNode, int]] | None:
    """The nodes, and how many cores of each, that the request gets now."""
    if request.cores is None:
        assert request.nodes is not None
        idle = [node for node in nodes if node.cores == list(node.spec.cores) and node.offers(1, request)]
        idle = idle[: request.nodes.most]
        return [(node, len(node.cores)) for node in idle] if len(idle) >= request.nodes.least else None
    least = request.cores.least
    most = 10**9 if request.cores.most is None else request.cores.most
    able = [node for node in nodes if node.offers(least, request)]
    if request.nodes is not None:
        if least < most:  # then the nodes that have most to give, each of them the same
            able.sort(key=lambda node: len(node.cores), reverse=True)
        able = able[: request.nodes.most]
        if len(able) < request.nodes.least:
            return None
        sized_requests = min(most, *[len(node.cores) for node in able])
        return [(node, sized_requests) for node in nodes if node in able]
    if request.one_node:
        if not able:
            return None
        best = max(able, key=lambda node: min(most, len(node.cores)))
        return [(best, min(most, len(best.cores)))]
    want = min(most, sum(len(node.cores) for node in nodes))
    if want < least:
        return None
    for node in nodes:
        if len(node.cores) >= want:
            return [(node, want)]
    chosen = []
    for node in nodes:
        count = min(want, len(node.cores))
        if count:
            chosen.append((node, count))
            want -= count
    return chosen
