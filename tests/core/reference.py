"""A slow and obvious reference scheduler: it keeps plain lists and visits every job in every pass.

It follows the documented rules: higher priority first, then first come, first served; a job that does not fit is
overtaken; a range takes as much as is free. Cores are taken from the first nodes, lowest numbers first. Nodes of
different groups never mix; a job for any host takes the host with the most free cores. On a host with slots each
attempt takes one. A part of a GPU comes from the fullest GPU that has room for it, otherwise from the first free one. A
job also takes counters of its nodes and of the run, and does not fit while one of them is short. A held job waits until
it is released. A job that fails waits again, while its policy has retries left for the cause; it may pause, and ask for
more than before. The first job that does not fit gets a reservation where it is known when it can start: see
`reference_backfill`.

For a minute after it is ready, a job that failed avoids the node on which it did, if another node could take it. A job
that could not be started is tried once on another node. A node is drained when so many jobs in a row failed on it that
then succeeded (or could be started) on a node where nothing else failed since a minute before, or were lost with it.
The last node is not drained.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import msgspec

from qcg.pilotjob.core.forecast import ENOUGH_ENDED, MARGIN
from qcg.pilotjob.core.pool import EMPTY
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.changes import JobChange, changed_description
from qcg.pilotjob.description.model import Amount, ExtraResources, JobDescription, ResourceRequest, Steps
from qcg.pilotjob.description.retry import pause_before
from tests.core.reference_backfill import ExpectedEnd, ReferenceBackfill, Waiting

FINAL = ("SUCCEED", "FAILED", "CANCELED", "OMITTED")

Unit = int | None
"""An index, or None for a job without iterations."""


class FreeNode:
    """The free resources of one node."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.cores = list(spec.cores)
        self.gpus = dict.fromkeys(spec.gpus, 1000)
        """Thousandths that are free of each GPU."""
        self.memory = spec.memory
        self.counters = dict(spec.counters)
        self.drained = False

    def offers(self, cores: int, request: ResourceRequest) -> bool:
        if len(self.cores) < cores or self.memory < request.memory or len(self.free_gpus()) < request.gpus:
            return False
        extra = request.extra or ExtraResources()
        if extra.gpu_share and not self.gpus_for(request):
            return False
        return all(self.counters.get(name, 0) >= number for name, number in extra.on_node)

    def free_gpus(self) -> list[str]:
        return [gpu for gpu, free in self.gpus.items() if free == 1000]

    def gpus_for(self, request: ResourceRequest) -> list[str]:
        share = request.extra.gpu_share if request.extra is not None else 0
        if not share:
            return self.free_gpus()[: request.gpus]
        in_use = [gpu for gpu, free in self.gpus.items() if share <= free < 1000]
        return [min(in_use, key=lambda gpu: self.gpus[gpu])] if in_use else self.free_gpus()[:1]


class Row:
    """Consecutive failures of a node."""

    def __init__(self) -> None:
        self.count = 0
        self.lost_at = 0.0


class ReferenceJob:
    def __init__(self, description: JobDescription, requests: list[ResourceRequest]) -> None:
        iteration = description.iteration
        self.name = description.name
        self.dependencies = [("after", entry) for entry in description.after] + list(description.outcomes)
        self.units: list[Unit] = [None] if iteration is None else list(iteration.indices())
        self.wall_time = description.wall_time or 0.0
        self.requests = dict(zip(self.units, requests, strict=True))
        self.states: dict[Unit, str] = dict.fromkeys(self.units, "QUEUED")
        self.begun: set[Unit] = set()
        """What has ever begun to run."""
        self.description = description
        self.retries: dict[Unit, list[str]] = {unit: [] for unit in self.units}
        """Causes of the attempts that were retried."""
        self.pauses: dict[Unit, float] = dict.fromkeys(self.units, 0.0)
        self.held: dict[Unit, bool] = dict.fromkeys(self.units, description.hold)
        self.priorities: dict[Unit, int] = dict.fromkeys(self.units, description.priority)
        self.avoids: dict[Unit, tuple[str, float]] = dict.fromkeys(self.units, ("", 0.0))
        """The node that each iteration avoids, and until when."""
        self.failures: dict[Unit, dict[str, tuple[str, float, Row]]] = {unit: {} for unit in self.units}
        """Cause, time and row of the last failure on each node."""
        self.unstartable: set[Unit] = set()
        """What could not be started once."""
        self.hopeless = False
        """An iteration could not be started on two nodes."""

    def demand(self, unit: Unit, specs: list[NodeSpec]) -> tuple[ResourceRequest, float]:
        """The request and the wall time of the next attempt."""
        return grown(self.description, self.requests[unit], self.retries[unit], specs)

    @property
    def state(self) -> str:
        states = set(self.states.values())
        if not states <= set(FINAL):
            return "unfinished"
        return next(state for state in ("FAILED", "CANCELED", "OMITTED", "SUCCEED") if state in states)


class Reference:
    def __init__(
        self,
        specs: list[NodeSpec],
        counters: Mapping[str, int] = EMPTY,
        enough_ended: int = ENOUGH_ENDED,
        drain_after: int = 0,
    ) -> None:
        self.specs = specs
        self.counters = dict(counters)
        self.drain_after = drain_after
        self.rows: dict[str, Row] = {}
        self.failed_at: dict[str, float] = {}
        self.scheduled: dict[tuple[str, Unit], float] = {}
        self.nodes = [FreeNode(spec) for spec in specs]
        self.jobs: list[ReferenceJob] = []
        self.grants: dict[tuple[str, Unit], Grant] = {}
        self.since: dict[tuple[str, Unit], float] = {}
        """When attempts were scheduled or have started."""
        self.durations: dict[ResourceRequest, list[tuple[float, bool]]] = {}
        """Durations of ended attempts by request, and whether they succeeded."""
        self.enough_ended = enough_ended
        self.ended = 0
        self.backfill = ReferenceBackfill(self.nodes, choose_in_group)

    def submit(self, descriptions: list[JobDescription]) -> None:
        for description in descriptions:
            job = ReferenceJob(description, requests_of(description, self.specs))
            self.jobs.append(job)
            idle = [FreeNode(spec) for spec in self.specs]
            if any(choose_in_group(idle, request) is None for request in job.requests.values()):
                job.states = dict.fromkeys(job.units, "FAILED")
        self._omit()

    def schedule(self, left: float, now: float = math.inf) -> list[tuple[str, Unit, Grant]]:
        """Everything that is started now, in order; it may take so many seconds."""
        started = []
        self.backfill.begin(now, left, self._expected_ends, self.ended)
        all_units = [(job, unit) for job in self.jobs for unit in job.units]
        for job, unit in sorted(all_units, key=lambda pair: -pair[0].priorities[pair[1]]):
            waits = any(verdict != "met" for verdict in self._verdicts(job, unit))
            request, wall_time = job.demand(unit, self.specs)
            waits = waits or job.held[unit]
            if job.states[unit] != "QUEUED" or waits or wall_time > left or left <= 0 or job.pauses[unit] > now:
                continue
            of_run = request.extra.of_run if request.extra is not None else ()
            if not all(self.counters[name] >= number for name, number in of_run):
                continue
            if not self.backfill.leaves_counters(request, self.counters):
                continue
            avoided, until = job.avoids[unit]
            avoided = avoided if now < until else ""
            chosen = self.backfill.choose(request, wall_time or self._expected_duration(request), avoided)
            if chosen is None and avoided:
                continue
            if chosen is None:
                self.backfill.add(Waiting(job.name, unit, request, wall_time))
            else:
                grant = Grant(tuple([self._take(seen, count, request) for seen, count in chosen]), request.extra)
                for name, number in of_run:
                    self.counters[name] -= number
                self.grants[job.name, unit] = grant
                self.since[job.name, unit] = now
                self.scheduled[job.name, unit] = now
                job.states[unit] = "SCHEDULED"
                started.append((job.name, unit, grant))
        return started

    def fail(self, name: str, unit: Unit, cause: str, exit_code: int, attempt_id: str, now: float) -> None:
        """Record the failure of an attempt: the job fails, or waits for another attempt."""
        job = self.find(name)
        policy, used = job.description.retry, job.retries[unit]
        nodes = [part.node for part in self.grants[name, unit].parts]
        if cause == "lost":
            self._count_loss(nodes, self.scheduled[name, unit], now)
        else:
            if cause != "unstartable" and job.states[unit] == "EXECUTING":
                self._blame(job, unit, "unstartable")
            self.failed_at.update(dict.fromkeys(nodes, now))
        codes = policy.exit_codes if policy is not None and cause == "exit" else ()
        wanted = not codes or any(first <= exit_code <= last for first, last in codes)
        if policy is None or used.count(cause) >= policy.budgets.get(cause, 0) or not wanted:
            again = cause == "unstartable" and unit in job.unstartable
            job.hopeless |= again and unit is not None
            elsewhere = self.drain_after and cause == "unstartable" and not (again or job.hopeless)
            if not elsewhere or len(nodes) > 1 or not self._others_can(job, unit, nodes[0]):
                self.end(name, unit, "FAILED")
                return
            job.pauses[unit] = 0.0
        else:
            used.append(cause)
            job.pauses[unit] = now + pause_before(policy, used.count(cause), attempt_id)
        if cause == "unstartable":
            job.unstartable.add(unit)
        self._note_failure(job, unit, cause, nodes, now)
        self.end(name, unit, "QUEUED")

    def succeed(self, name: str, unit: Unit) -> None:
        """Record the success of an attempt: its nodes have no failures any more, and other nodes may have some."""
        for part in self.grants[name, unit].parts:
            self.rows.pop(part.node, None)
        self._blame(self.find(name), unit)
        self.end(name, unit, "SUCCEED")

    def drain(self, name: str) -> None:
        node = self._node(name)
        if not node.drained:
            node.drained = True
            self.backfill.nodes_changed()

    def resume(self, name: str) -> None:
        """Use a drained node again, and forget its failures."""
        node = self._node(name)
        if node.drained:
            node.drained = False
            self.backfill.nodes_changed()
            self.rows.pop(name, None)
            self.failed_at.pop(name, None)

    def drained(self) -> set[str]:
        return {node.spec.name for node in self.nodes if node.drained}

    def _note_failure(self, job: ReferenceJob, unit: Unit, cause: str, nodes: list[str], now: float) -> None:
        policy, avoided = job.description.retry, ""
        grows = policy is not None and policy.grow is not None and cause in ("exit", "signal", "timeout")
        if len(nodes) == 1 and cause != "lost":
            if not grows:
                job.failures[unit][nodes[0]] = (cause, now, self.rows.setdefault(nodes[0], Row()))
            avoided = nodes[0] if self._others_can(job, unit, nodes[0]) else ""
        job.avoids[unit] = avoided, max(now, job.pauses[unit]) + 60.0

    def _count_loss(self, nodes: list[str], scheduled: float, now: float) -> None:
        """Count a loss against its node, once for all attempts that are lost together."""
        row = self.rows.setdefault(nodes[0], Row()) if len(nodes) == 1 else None
        if row is not None and scheduled > row.lost_at:
            row.lost_at = now
            self._count(nodes[0], row)

    def _blame(self, job: ReferenceJob, unit: Unit, only: str = "") -> None:
        """Count earlier failures of the job on other nodes than this one against those nodes."""
        here = [part.node for part in self.grants[job.name, unit].parts]
        for node, (cause, at, row) in list(job.failures[unit].items()):
            if node not in here and only in ("", cause):
                del job.failures[unit][node]
                clean = all(self.failed_at.get(other, -math.inf) < at - 60.0 for other in here)
                if clean and self.rows.get(node) is row:
                    self._count(node, row)

    def _count(self, name: str, row: Row) -> None:
        row.count += 1
        node = self._node(name)
        others = [other for other in self.nodes if bool(other.spec.group) == bool(node.spec.group)]
        if 0 < self.drain_after <= row.count and any(not other.drained for other in others if other is not node):
            self.drain(name)

    def _others_can(self, job: ReferenceJob, unit: Unit, name: str) -> bool:
        request, _ = job.demand(unit, self.specs)
        others = [FreeNode(node.spec) for node in self.nodes if not node.drained and node.spec.name != name]
        return choose_in_group(others, request) is not None

    def _node(self, name: str) -> FreeNode:
        return next(node for node in self.nodes if node.spec.name == name)

    def start(self, name: str, unit: Unit, at: float) -> None:
        """Record when an attempt has started."""
        self.since[name, unit] = max(self.since[name, unit], at)
        job = self.find(name)
        job.states[unit] = "EXECUTING"
        job.begun.add(unit)

    def took(self, name: str, unit: Unit, seconds: float, succeeded: bool) -> None:
        """Record the duration of an attempt that has started and is about to end."""
        request, _ = self.find(name).demand(unit, self.specs)
        self.durations.setdefault(request, []).append((seconds, succeeded))

    def _expected_duration(self, request: ResourceRequest) -> float:
        past = self.durations.get(request, [])
        if sum(succeeded for _, succeeded in past) < self.enough_ended:
            return math.inf
        return MARGIN * max(seconds for seconds, _ in past)

    def _expected_ends(self) -> list[ExpectedEnd]:
        ends = []
        for (name, unit), grant in self.grants.items():
            request, wall_time = self.find(name).demand(unit, self.specs)
            duration = wall_time or self._expected_duration(request)
            if duration < math.inf:
                ends.append(ExpectedEnd(self.since[name, unit] + duration, wall_time > 0, grant))
        return ends

    def end(self, name: str, unit: Unit, state: str) -> None:
        """Record the end of an attempt or the cancellation of a waiting job."""
        grant = self.grants.pop((name, unit), Grant(()))
        extra = grant.extra or ExtraResources()
        for name_of_counter, number in extra.of_run:
            self.counters[name_of_counter] += number
        self.ended += bool(grant.parts)
        for part in grant.parts:
            node = next(node for node in self.nodes if node.spec.name == part.node)
            node.cores = sorted([*node.cores, *part.cores])
            node.memory += part.memory
            for gpu in part.gpus:
                node.gpus[gpu] += extra.gpu_share or 1000
            for name_of_counter, number in extra.on_node:
                node.counters[name_of_counter] += number
        job = self.find(name)
        job.states[unit] = state
        if state == "SUCCEED":
            job.begun.add(unit)
        self._omit()

    def cancel(self, name: str) -> None:
        """Cancel all iterations of a job that have not started."""
        job = self.find(name)
        for unit in job.units:
            if job.states[unit] == "QUEUED":
                job.states[unit] = "CANCELED"
        self._omit()

    def rerun(self, wanted: set[tuple[str, Unit]]) -> None:
        """Rerun the named jobs, if all their prerequisites can succeed, and omitted dependents of rerun jobs."""
        bad = {
            (job.name, unit)
            for job in self.jobs
            for unit in job.units
            if job.states[unit] in ("FAILED", "CANCELED", "OMITTED")
        }
        back: set[tuple[str, Unit]] = set()
        changed = True
        while changed:
            changed = False
            for name, unit in bad - back:
                job = self.find(name)
                awaited = {one for _, entry in job.dependencies for one in self._awaited(entry, unit)}
                omitted = job.states[unit] == "OMITTED" and bool(awaited & back)
                # Not even while other iterations of the prerequisites are unfinished.
                succeeding = {
                    one for kind, entry in job.dependencies if kind == "after" for one in self._awaited(entry, unit)
                }
                is_blocked = bool(succeeding & bad - back) or "never" in self._verdicts(job, unit, back)
                if ((name, unit) in wanted or omitted) and not is_blocked:
                    back.add((name, unit))
                    changed = True
        for name, unit in back:
            job = self.find(name)
            job.states[unit], job.retries[unit], job.pauses[unit] = "QUEUED", [], 0.0
            job.avoids[unit], job.failures[unit], job.hopeless = ("", 0.0), {}, False
            job.unstartable.discard(unit)
        idle = [FreeNode(spec) for spec in self.specs]
        for job in self.jobs:
            if any(choose_in_group(idle, request) is None for request in job.requests.values()):
                job.states.update({unit: "FAILED" for unit in job.units if job.states[unit] == "QUEUED"})
        self._omit()

    def _awaited(self, entry: str, unit: Unit) -> list[tuple[str, Unit]]:
        """All iterations that an entry of `after` stands for."""
        name, _, index = entry.partition(":")
        if index:
            return [(name, unit if index == "${it}" else int(index))]
        return [(name, one) for one in self.find(name).units]

    def hold(self, name: str, *, held: bool) -> None:
        """Hold or release a job with all its iterations, or one iteration."""
        found, _, index = name.partition(":")
        job = self.find(found)
        job.held.update(dict.fromkeys([int(index)] if index else job.units, held))

    def set(self, name: str, change: JobChange) -> None:
        """Change the waiting iterations of a job; the core has accepted the change."""
        job = self.find(name)
        description = changed_description(job.description, change)
        assert not isinstance(description, str)
        job.description, job.wall_time = description, description.wall_time or 0.0
        job.requests = dict(zip(job.units, requests_of(description, self.specs), strict=True))
        job.priorities = dict.fromkeys(job.units, description.priority)

    def states(self) -> dict[str, tuple[str, list[str]]]:
        return {job.name: (job.state, list(job.states.values())) for job in self.jobs}

    def find(self, name: str) -> ReferenceJob:
        return next(job for job in self.jobs if job.name == name)

    def _omit(self) -> None:
        """Omit jobs with dependencies that can never be met until none is left. A job that has ended is not held."""
        changed = True
        while changed:
            changed = False
            for job in self.jobs:
                for unit in job.units:
                    if job.states[unit] == "QUEUED" and "never" in self._verdicts(job, unit):
                        job.states[unit] = "OMITTED"
                        changed = True
        for job in self.jobs:
            if job.state in FINAL:
                job.held = dict.fromkeys(job.units, False)

    def _verdicts(self, job: ReferenceJob, unit: Unit, back: Collection[tuple[str, Unit]] = frozenset()) -> list[str]:
        """Whether each dependency of one iteration is `met`, `open`, or can `never` be met, if `back` runs again."""
        verdicts = []
        for kind, entry in job.dependencies:
            awaited = self._awaited(entry, unit)
            states = {self.find(name).states[one] for name, one in awaited if (name, one) not in back}
            if any(one in back for one in awaited):
                states.add("QUEUED")
            begun = any(one in self.find(name).begun for name, one in awaited)
            verdicts.append(verdict(kind, states, begun))
        return verdicts

    def _take(self, seen: FreeNode, count: int, request: ResourceRequest) -> NodePart:
        """`seen`: the node without what is reserved for other jobs."""
        node = next(node for node in self.nodes if node.spec.name == seen.spec.name)
        extra = request.extra or ExtraResources()
        for name, number in extra.on_node:
            node.counters[name] -= number
        if node.spec.slots:
            return NodePart(node.spec.name, (node.cores.pop(0),))
        gpus = tuple(seen.gpus_for(request))
        part = NodePart(node.spec.name, tuple(node.cores[:count]), gpus, request.memory)
        node.cores = node.cores[count:]
        for gpu in gpus:
            node.gpus[gpu] -= extra.gpu_share or 1000
        node.memory -= request.memory
        return part


def verdict(kind: str, states: set[str], begun: bool) -> str:
    """The meaning of the states of a prerequisite (all iterations, or one of them) for a dependency."""
    ended = states <= set(FINAL)
    if kind == "afterstart":
        return "met" if begun else "never" if ended else "open"
    if kind == "afterany":
        return "met" if ended else "open"
    if kind == "afternotok":
        return "open" if not ended else "never" if states == {"SUCCEED"} else "met"
    return "met" if states == {"SUCCEED"} else "never" if ended else "open"


def requests_of(description: JobDescription, specs: list[NodeSpec]) -> list[ResourceRequest]:
    """The request of each iteration; when there is too little to share, its minimum."""
    sharing, request = description.sharing, description.request
    count = 1 if description.iteration is None else len(description.iteration)
    if sharing is None:
        return [request] * count
    of_cores = sharing.of == "cores"
    specs = largest_group(
        [spec for spec in specs if spec.group == request.host or (request.host == "*" and spec.group)]
    )
    total = sum(len(spec.cores) for spec in specs) if of_cores else len(specs)
    shared = request.cores if of_cores else request.nodes
    assert shared is not None
    if total // (sharing.parts or count if sharing.name == "split-into" else 1) < shared.least:
        amounts = [Amount(shared.least, shared.least)] * count
    elif sharing.name == "split-into":
        amounts = [Amount(shared.least, total // (sharing.parts or count))] * count
    else:
        amounts = [Amount(size, size) for size in maximum_iters(count, total, shared.least)]
    extras = request.gpus, request.memory, request.one_node, request.host, request.extra
    if of_cores:
        return [ResourceRequest(amount, request.nodes, *extras) for amount in amounts]
    return [ResourceRequest(request.cores, amount, *extras) for amount in amounts]


def grown(
    description: JobDescription, request: ResourceRequest, retries: list[str], specs: list[NodeSpec]
) -> tuple[ResourceRequest, float]:
    """The request and wall time of an attempt after these retries: of memory and of cores at most what exists."""
    steps = sum(cause in ("exit", "signal", "timeout", "memory") for cause in retries)
    growth = description.retry.grow if description.retry is not None else None
    wall_time = description.wall_time or 0.0
    if growth is None or not steps:
        return request, wall_time
    if wall_time and growth.wall_time is not None:
        wall_time = grown_value(growth.wall_time, wall_time, steps)

    def fits(wanted: ResourceRequest) -> bool:
        return choose_in_group([FreeNode(spec) for spec in specs], wanted) is not None

    total = sum(len(spec.cores) for spec in specs)
    for number in range(steps, 0, -1):
        memory, cores = request.memory, request.cores
        if memory and growth.memory is not None:
            memory = math.ceil(grown_value(growth.memory, memory, number))
        if (
            cores is not None
            and growth.cores is not None
            and (not description.sharing or description.sharing.of != "cores")
        ):
            least = math.ceil(grown_value(growth.cores, cores.least, number))
            most = None if cores.most is None else math.ceil(grown_value(growth.cores, cores.most, number))
            cores = Amount(least, most)
        whole = msgspec.structs.replace(request, cores=cores, memory=memory)
        less_memory = [spec.memory for spec in specs if request.memory < spec.memory < memory]
        alone = [msgspec.structs.replace(request, memory=amount) for amount in (memory, *sorted(less_memory)[::-1])]
        limited = next(filter(fits, alone), request)
        if cores is not None and request.cores is not None and cores != request.cores:
            fewer = range(min(cores.least - 1, total), request.cores.least, -1)
            alone = [
                msgspec.structs.replace(
                    request, cores=Amount(count, count if cores.most == cores.least else cores.most)
                )
                for count in (cores.least, *fewer)
            ]
            limited = msgspec.structs.replace(limited, cores=next(filter(fits, alone), request).cores)
        for wanted in (whole, limited):
            if fits(wanted):
                return wanted, wall_time
    return request, wall_time


def grown_value(steps_of: Steps, value: float, steps: int) -> float:
    if isinstance(steps_of, tuple):
        return [*steps_of, *[steps_of[-1]] * steps][steps - 1]
    for _ in range(steps):
        value *= steps_of
    return value


def maximum_iters(count: int, total: int, least: int) -> list[int]:
    """The cores of each of `count` iterations: as few rounds as possible, and all cores used in each round."""
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


def largest_group(specs: list[NodeSpec]) -> list[NodeSpec]:
    groups = [[spec for spec in specs if spec.group == name] for name in dict.fromkeys(spec.group for spec in specs)]
    return max(groups, key=lambda group: sum(len(spec.cores) for spec in group), default=[])


def choose_in_group(nodes: list[FreeNode], request: ResourceRequest) -> list[tuple[FreeNode, int]] | None:
    """The nodes that the request gets now, all of one group."""
    names = dict.fromkeys(node.spec.group for node in nodes)
    groups = [
        [node for node in nodes if node.spec.group == name]
        for name in names
        if name == request.host or (request.host == "*" and name)
    ]
    for group in sorted(groups, key=lambda group: -sum(len(node.cores) for node in group)):
        if group[0].spec.slots:
            counted = ResourceRequest(extra=request.extra)
            shared = request.extra is not None and request.extra.gpu_share
            chosen = next(([(node, 1)] for node in group if node.offers(1, counted) and not shared), None)
        else:
            chosen = choose(group, request)
        if chosen is not None:
            return chosen
    return None


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
        if least < most:  # then the nodes with the most free cores, with the same number on each
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
