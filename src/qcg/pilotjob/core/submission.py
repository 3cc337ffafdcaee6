"""Take in a submission: all of its jobs, or none and a sentence for each thing that is wrong."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping

import msgspec

from qcg.pilotjob.core import bitmaps
from qcg.pilotjob.core.dependencies import Prerequisite, Suggestions, Waiting, dependents_of, find_cycles, resolve
from qcg.pilotjob.core.effects import Added, Reply
from qcg.pilotjob.core.errors import Refused
from qcg.pilotjob.core.events import Submit
from qcg.pilotjob.core.finalize import Rest, make_ready, omitted_by_index, settle
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.queue import Entry
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.state import CoreState, name_of
from qcg.pilotjob.core.states import CANCELED, EXECUTING, FAILED, OMITTED, QUEUED, SCHEDULED, SUCCEED, State
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.model import Amount, JobDescription, Request
from qcg.pilotjob.description.sharing import MaximumIters, split_into

_encode_into = msgspec.msgpack.Encoder().encode_into

MOST_SAME_INDEX = 255
"""How many prerequisites of its own index an iteration may have: a byte counts them."""


MOST_CYCLES = 20
"""Cycles of dependencies that a refusal tells."""


class Newcomer(msgspec.Struct, gc=False):
    """A job on its way in."""

    job: Job
    description: JobDescription
    requests: tuple[Request, ...]
    prerequisites: tuple[Prerequisite, ...] = ()


def submit(core: CoreState, event: Submit) -> None:
    newcomers = _admit(core, event.jobs)
    core.next_seq += len(newcomers)
    for newcomer in newcomers:
        core.register(newcomer.job)
    jobs = [newcomer.job for newcomer in newcomers]
    if jobs:
        core.effects.append(Added(jobs))
    core.effects.append(Reply({"submitted": len(jobs), "jobs": [job.name for job in jobs]}))
    for newcomer in newcomers:
        take_place(core, newcomer)


def take_place(core: CoreState, newcomer: Newcomer, *, accepted_before: bool = False) -> None:
    """Queue the job, let it wait, or end it where it stands because it can never run.

    One that was accepted before, when there were other nodes, waits for such nodes.
    """
    job = newcomer.job
    line = core.queue.line
    wall_time = newcomer.description.wall_time
    plan = job.iterations.plan if job.iterations is not None else None
    if plan is None:
        job.entries = (Entry(job, line(newcomer.requests[0], wall_time), wall_time),)
    else:
        sizes = zip(newcomer.requests, plan.sizes(), strict=True)
        job.entries = tuple([Entry(job, line(request, wall_time), wall_time, size) for request, size in sizes])
    for entry in () if accepted_before else job.entries:
        if entry.line.never is not None:
            end_all(core, job, FAILED, entry.line.never)
            return
    if newcomer.prerequisites:
        waiting = job.waiting = Waiting()
        for prerequisite in newcomer.prerequisites:
            _wait_for(core, job, waiting, prerequisite)
    if not job.state.is_final and (job.waiting is None or not job.waiting.whole):
        make_ready(core, job)


def end_all(core: CoreState, job: Job, state: State, message: str) -> None:
    """End all of a job that has not started; what is under way of it goes on."""
    settle(core, Rest(job, state, message))


def _admit(core: CoreState, descriptions: list[JobDescription]) -> list[Newcomer]:
    """Check everything before anything is changed."""
    problems: list[str] = []
    newcomers: list[Newcomer] = []
    new: dict[str, Job] = {}
    buffer = bytearray()
    for seq, description in enumerate(descriptions, core.next_seq):
        name = description.name
        if name in core.jobs or name in new:
            problems.append(f"job {name!r} already exists; choose another name or remove the old job first")
            continue
        job = new[name] = Job(seq, name, _encoded(description, buffer), core.now)
        try:
            newcomers.append(welcome(core, job, description))
        except DescriptionError as error:
            problems.append(f"job {name!r}: {error}")
    find = ChainMap(new, core.jobs)
    suggestions = Suggestions(find)
    waiting = [newcomer for newcomer in newcomers if newcomer.description.after]
    for newcomer in waiting:
        problems += find_prerequisites(newcomer, find, suggestions)
    problems += map(_about_cycle, find_cycles({one.job: one.prerequisites for one in waiting}, MOST_CYCLES))
    if problems:
        raise Refused(problems)
    return newcomers


def _about_cycle(cycle: list[Job]) -> str:
    if len(cycle) == 1:
        return f"job {cycle[0].name!r} waits for itself and could never start"
    names = " -> ".join(job.name for job in [*cycle, cycle[0]])
    return f"these jobs wait for each other and could never start: {names}"


def _encoded(description: JobDescription, buffer: bytearray) -> bytes:
    """In no more memory than it needs: what the encoder makes was larger before, and leaves a gap behind that nothing
    else fits into."""
    _encode_into(description, buffer)
    return bytes(buffer)


def welcome(core: CoreState, job: Job, description: JobDescription) -> Newcomer:
    if description.iteration is not None:
        job.iterations = Iterations(description.iteration.indices())
    requests, plan = share(core, description)
    if job.iterations is not None:
        job.iterations.plan = plan
    return Newcomer(job, description, requests)


def find_prerequisites(
    newcomer: Newcomer, find: Mapping[str, Job], suggestions: Suggestions | None = None
) -> list[str]:
    """Resolve what a newcomer waits for; sentences for what cannot be resolved."""
    description = newcomer.description
    indices = description.iteration.indices() if description.iteration is not None else None
    problems = []
    found: dict[Prerequisite, None] = {}
    for entry in description.after:
        resolved = resolve(description.name, entry, indices, find, suggestions)
        if isinstance(resolved, str):
            problems.append(resolved)
        else:
            found[resolved] = None
    newcomer.prerequisites = tuple(found)
    if sum(prerequisite.same_index for prerequisite in found) > MOST_SAME_INDEX:
        problems.append(
            f"job {description.name!r} waits for more than {MOST_SAME_INDEX} jobs by index; name whole jobs"
        )
    return problems


def share(core: CoreState, description: JobDescription) -> tuple[tuple[Request, ...], MaximumIters | None]:
    """What `maximum-iters` or `split-into` make of a request, given what exists: one request for each size."""
    sharing = description.sharing
    plan: MaximumIters | None = None
    if sharing is None:
        return (description.request,), None
    of_cores = sharing.of == "cores"
    amount = description.request.cores if of_cores else description.request.nodes
    assert amount is not None
    total = core.pool.total_cores if of_cores else len(core.nodes)
    count = sharing.sharers or (len(description.iteration) if description.iteration is not None else 1)
    if sharing.name == "split-into":
        amounts = [split_into(total, sharing.parts or count, amount.least)]
    else:
        plan = MaximumIters(count, total, amount.least)
        sizes = plan.sizes()
        if sharing.sharers is not None:
            sizes, plan = (plan.size(sharing.position),), None
        amounts = [Amount(size, size) for size in sizes]
    field = "cores" if of_cores else "nodes"
    return tuple([msgspec.structs.replace(description.request, **{field: amount}) for amount in amounts]), plan


def _wait_for(core: CoreState, job: Job, waiting: Waiting, prerequisite: Prerequisite) -> None:
    other = prerequisite.job
    if prerequisite.same_index:
        _wait_for_same_index(core, job, waiting, other)
        return
    position = -1 if prerequisite.position is None else prerequisite.position
    state = core.state_of(other, position)
    if not state.is_final:
        waiting.whole += 1
        dependents = dependents_of(other)
        if position < 0:
            dependents.whole.append(job)
        else:
            dependents.on_position.setdefault(position, []).append(job)
    elif state is not SUCCEED:
        end_all(core, job, OMITTED, f"it waits for {name_of(other, position)!r}, which is {state.name}")


def _wait_for_same_index(core: CoreState, job: Job, waiting: Waiting, other: Job) -> None:
    assert job.iterations is not None
    assert other.iterations is not None
    if waiting.by_position is None:
        waiting.by_position = bytearray(len(job.iterations))
    if not other.state.is_final:
        dependents_of(other).same_index.append(job)
    states = other.iterations.states
    waited_for = bitmaps.in_states(states, QUEUED, SCHEDULED, EXECUTING)
    indices = other.iterations.indices, job.iterations.indices
    waiting.by_position = bitmaps.added(waiting.by_position, bitmaps.seen_from(waited_for, *indices))
    for state in (FAILED, CANCELED, OMITTED):
        if other.iterations.counts[state]:
            for ending in omitted_by_index(job, other, state, bitmaps.in_states(states, state)):
                settle(core, ending)
