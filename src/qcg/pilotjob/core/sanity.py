"""Consistency check of the core's state, run by tests after every event."""

from __future__ import annotations

from collections import Counter

from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.dependencies import UnmetDependencies
from qcg.pilotjob.core.errors import SanityError
from qcg.pilotjob.core.job_states import EXECUTING, QUEUED, SCHEDULED, State
from qcg.pilotjob.core.node_group import NodeGroup
from qcg.pilotjob.core.queue import entry_of
from qcg.pilotjob.core.records import Attempt, Cleanup, Job, Lane
from qcg.pilotjob.core.resources import Node
from qcg.pilotjob.description.model import WHOLE_GPU, ExtraResources

_NOTHING = ExtraResources()


def check(core: CoreState) -> None:
    """Raise `SanityError` with the first contradiction found."""
    _check_resources(core)
    for attempt in core.attempts.values():
        _check_attempt(core, attempt)
    by_node = {(part.node, attempt) for attempt in core.attempts.values() for part in attempt.grant.parts}
    _expect(
        {(node, attempt) for node, attempts in core.attempts_on.items() for attempt in attempts} == by_node,
        "attempts are listed under other nodes",
    )
    started = sum(attempt.started > 0 for attempt in core.attempts.values())
    _expect(started == core.executing, f"{started} attempts have started, and {core.executing} are counted")
    for cleanup in core.cleanups.values():
        _check_cleanup(core, cleanup)
    in_lines = {id(entry) for line in core.queue.lines.values() for entry in line.entries}
    for job in core.jobs.values():
        _check_job(core, job, in_lines)
    _check_counts(core)
    waiting = set(core.pauses)
    for (seq, position), (at, job) in core.paused.items():
        _expect((at, seq, position) in waiting, f"job {seq}, position {position} pauses and would never be woken")
        state = core.state_of(job, position)
        _expect(state is QUEUED, f"{name_of(job, position)} pauses before its next attempt, and is {state.name}")
    for (_, position), (_, job) in core.health.avoiding.items():
        state = core.state_of(job, position)
        _expect(not state.is_final, f"{name_of(job, position)} avoids a node, and is {state.name}")


def _expect(truth: bool, sentence: str) -> None:
    if not truth:
        raise SanityError(sentence)


def _check_resources(core: CoreState) -> None:
    holders: Counter[tuple[str, int]] = Counter()
    gpus: Counter[tuple[str, str]] = Counter()
    """Thousandths of GPUs that are held."""
    named: Counter[tuple[str, str]] = Counter()
    """Counters that are held, by node; those of the run without a node."""
    memory: Counter[str] = Counter()
    strays = [cleanup.grant for cleanup in core.cleanups.values() if cleanup.attempt is None]
    having = [
        attempt.grant for attempt in core.attempts.values() if attempt.lane is None or attempt.lane.first is attempt
    ]
    for grant in [*strays, *having]:
        extra = grant.extra or _NOTHING
        named.update({("", name): number for name, number in extra.of_run})
        for part in grant.parts:
            holders.update((part.node, core_id) for core_id in part.cores)
            gpus.update({(part.node, gpu): extra.gpu_share or WHOLE_GPU for gpu in part.gpus})
            named.update({(part.node, name): number for name, number in extra.on_node})
            memory[part.node] += part.memory
    for node in core.pool.nodes:
        name = node.spec.name
        free = {core_id for core_id, bit in node.bits.items() if node.free & bit}
        for core_id in node.spec.cores:
            number = holders[name, core_id]
            _expect((core_id in free) == (not number), f"{core_id!r} of {name} is free and held, or neither")
            _expect(
                node.contested.get(core_id, 0) == max(0, number - 1),
                f"{core_id!r} of {name} is held by {number} attempts, and {node.contested.get(core_id, 0)} contest it",
            )
        _check_gpus(node, {gpu: gpus[name, gpu] for gpu in node.spec.gpus})
        _check_named(f"of {name}", dict(node.spec.counters), node.counters, _of(name, named))
        _expect(node.nfree == node.free.bit_count(), f"{name} counts {node.nfree} free cores")
        _expect(node.memory == node.spec.memory - memory[name], f"{name} counts {node.memory} MiB of free memory")
    _check_named("of the run", core.pool.counters.totals, core.pool.counters.free, _of("", named))
    for group in core.pool.groups:
        _check_masks(group)


def _check_gpus(node: Node, held: dict[str, int]) -> None:
    """Check the free GPUs of a node, and the thousandths that are taken of the others."""
    name = node.spec.name
    _expect(node.gpus == [gpu for gpu in held if not held[gpu]], f"{name} has {node.gpus} as free GPUs")
    taken = {gpu: number for gpu, number in held.items() if number}
    _expect(node.gpus_taken == taken, f"{name} counts {node.gpus_taken} thousandths of GPUs, and {taken} are held")
    contested = {gpu: number - WHOLE_GPU for gpu, number in taken.items() if number > WHOLE_GPU}
    found = {thing: excess for thing, excess in node.contested.items() if isinstance(thing, str)}
    _expect(found == contested, f"{name} has {found} as contested GPUs, and {contested} are")


def _check_named(where: str, totals: dict[str, int], free: dict[str, int], held: dict[str, int]) -> None:
    for name in {*totals, *free, *held}:
        left = totals.get(name, 0) - held.get(name, 0)
        _expect(free.get(name, 0) == left, f"{free.get(name, 0)} {name} {where} are counted as free, and {left} are")


def _of(node: str, named: Counter[tuple[str, str]]) -> dict[str, int]:
    return {name: number for (where, name), number in named.items() if where == node}


def _check_masks(group: NodeGroup) -> None:
    available = [node for node in group.nodes if node.available]
    free = sum(node.nfree for node in available)
    _expect(free == group.free_cores, f"the pool counts {group.free_cores} free cores, and {free} are")
    idle = sum(node.bit for node in available if node.is_idle)
    _expect(idle == group.idle, f"the pool has {group.idle:b} as idle nodes, and {idle:b} are")
    for count, mask in group.with_free.items():
        fitting = sum(node.bit for node in available if node.nfree >= count)
        _expect(fitting == mask, f"the pool has {mask:b} as nodes with {count} free cores, and {fitting:b} are")


def _check_attempt(core: CoreState, attempt: Attempt) -> None:
    name = name_of(attempt.job, attempt.position)
    state = core.state_of(attempt.job, attempt.position)
    _expect(
        state in (SCHEDULED, EXECUTING),
        f"attempt {attempt.id} is registered, and {name} is {state.name}",
    )
    _expect(
        core.jobs.get(attempt.job.name) is attempt.job, f"attempt {attempt.id} belongs to a job that is not registered"
    )
    iterations = attempt.job.iterations
    known = attempt.job.attempt if iterations is None else iterations.attempts.get(attempt.position)
    _expect(known is attempt, f"attempt {attempt.id} is registered, and {name} has another one")
    groups = {core.pool.group_of(part.node) for part in attempt.grant.parts if part.node in core.pool}
    _expect(len(groups) < 2, f"attempt {attempt.id} has nodes of several groups")
    if attempt.lane is not None:
        _check_lane(core, attempt, attempt.lane)


def _check_lane(core: CoreState, attempt: Attempt, lane: Lane) -> None:
    first = lane.first
    _expect(attempt in lane.attempts, f"attempt {attempt.id} is not in its own lane")
    _expect(core.attempts.get(first.id) is first, f"attempt {attempt.id} is in the lane of {first.id}, which is over")
    _expect(attempt.grant == first.grant, f"attempt {attempt.id} is in the lane of {first.id}, which has other cores")
    _expect(attempt is first or not attempt.started, f"attempt {attempt.id} has started before {first.id} was over")
    watched = len(lane.attempts) > 1 and not lane.retracted
    _expect((lane in core.lanes) == watched, f"the lane of {first.id} is watched without need, or not watched")


def _check_cleanup(core: CoreState, cleanup: Cleanup) -> None:
    _expect(bool(cleanup.pending), f"attempt {cleanup.id} is gone from all its nodes, and its cleanup continues")
    _expect(not cleanup.pending & core.lost_nodes, f"attempt {cleanup.id} has a cleanup that waits for lost nodes")
    _expect(
        core.attempts.get(cleanup.id) is cleanup.attempt, f"attempt {cleanup.id} has a cleanup with another attempt"
    )
    has_reason = cleanup.ended is not None or bool(cleanup.lost_message)
    _expect(has_reason or cleanup.attempt is None, f"attempt {cleanup.id} has a cleanup without a reason")


def _check_job(core: CoreState, job: Job, in_lines: set[int]) -> None:
    iterations = job.iterations
    if iterations is None:
        under_way = job.state in (SCHEDULED, EXECUTING)
        _expect((job.attempt is not None) == under_way, f"{job.name} is {job.state.name}, its attempt is {job.attempt}")
        _expect(
            job.attempt is None or job.attempt.id in core.attempts, f"{job.name} has an attempt that is not registered"
        )
    else:
        counts = [iterations.states.count(state) for state in State]
        _expect(counts == iterations.counts, f"{job.name} counts {iterations.counts}, and {counts} are")
        _expect(
            len(iterations.attempts) == counts[SCHEDULED] + counts[EXECUTING],
            f"{job.name} has {len(iterations.attempts)} attempts, its iterations are {counts}",
        )
        _expect(
            job.state.is_final == (not iterations.unfinished),
            f"{job.name} is {job.state.name}, its iterations are {counts}",
        )
    if job.state.is_final:
        _expect(
            iterations is None or job.state is iterations.final_state(),
            f"{job.name} is {job.state.name}, its iterations have another final state",
        )
        _expect(
            not (job.entries or job.unmet or job.dependents or core.holds.has_any(job)),
            f"{job.name} is final, and has queue entries, dependencies or holds",
        )
    else:
        _check_entries(core, job, in_lines)


def _check_entries(core: CoreState, job: Job, in_lines: set[int]) -> None:
    """Check that the scheduler will find every position that is ready; `in_lines` are the ids of all queued entries."""
    unmet = job.unmet or UnmetDependencies()
    apart = job.iterations.apart if job.iterations is not None else None
    for entry in [*job.entries, *(apart or {}).values()]:
        _expect(entry.in_line == (id(entry) in in_lines), f"{job.name} has a wrong `in_line`")
    if unmet.on_jobs:
        return
    for position in range(len(job.iterations)) if job.iterations is not None else [-1]:
        if core.state_of(job, position) is QUEUED and not (unmet.same_index is not None and unmet.same_index[position]):
            entry = entry_of(job, position)
            found = entry.in_line and entry.can_reach(position)
            waits = (job.seq, position) in core.paused or core.holds.since(job, position) > 0
            _expect(found or waits, f"{name_of(job, position)} is ready, and the scheduler would not find it")
            _expect(not (found and waits), f"{name_of(job, position)} waits, and the scheduler would start it")


def _check_counts(core: CoreState) -> None:
    jobs, iterated = [0] * len(State), [0] * len(State)
    iterations = [0] * len(State)
    for job in core.jobs.values():
        jobs[job.state] += 1
        if job.iterations is not None:
            iterated[job.state] += 1
            iterations = [a + b for a, b in zip(iterations, job.iterations.counts, strict=True)]
    _expect(jobs == core.job_counts, f"the registry counts {core.job_counts}, and {jobs} are")
    _expect(iterated == core.iterated_counts, f"{core.iterated_counts} iterated jobs are counted, and {iterated} are")
    held = {*core.holds.jobs, *core.holds.positions}
    _expect(held == set(core.holds.by_number), f"jobs {held} are held, and {set(core.holds.by_number)} are listed")
    for line in core.queue.lines.values():
        wanted = {id(entry) for entry in line.entries if entry.job.iterations is not None}
        _expect(wanted == set(map(id, line.iterated)), "a queue line lists other iterated jobs than it has")
    _expect(
        iterations == core.iteration_counts,
        f"the registry counts iterations {core.iteration_counts}, and {iterations} are",
    )
