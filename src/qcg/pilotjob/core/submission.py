"""Submission of jobs: all are accepted, or none with a message for each problem."""

from __future__ import annotations

import shlex
from collections import ChainMap
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from qcg.pilotjob.core import bitmaps
from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.dependencies import (
    Prerequisite,
    Suggestions,
    UnmetDependencies,
    dependents_of,
    find_cycles,
    resolve,
)
from qcg.pilotjob.core.effects import Added, Held, Reply
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import Submit
from qcg.pilotjob.core.extra_resources import refusals, with_counters_of_nodes
from qcg.pilotjob.core.finalize import UnstartedFinalState, make_final, make_ready, omitted_by_index
from qcg.pilotjob.core.host_checks import shared_total, why_no_host
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import CANCELED, EXECUTING, FAILED, OMITTED, QUEUED, SCHEDULED, SUCCEED, State
from qcg.pilotjob.core.outcome_waits import wait_for_outcome
from qcg.pilotjob.core.outcomes import entries_of
from qcg.pilotjob.core.priority_order import rank_of
from qcg.pilotjob.core.queue import QueueEntry, make_entry
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.iteration_schedulers import MaximumIters, split_into
from qcg.pilotjob.description.model import Amount, DependencyKind, JobDescription, ResourceRequest

_encode_into = msgspec.msgpack.Encoder().encode_into

MAX_SAME_INDEX = 255
"""Same-index prerequisites of an iteration: they are counted in a byte."""
OPPOSITES: dict[DependencyKind, DependencyKind] = {"after": "afternotok", "afternotok": "after"}
"""Kinds of dependencies that are never both met."""
MAX_CYCLES = 20
"""Dependency cycles that an error message lists."""


class NewJob(msgspec.Struct, gc=False):
    """A job during submission, with its requests and prerequisites."""

    job: Job
    description: JobDescription
    requests: tuple[ResourceRequest, ...]
    prerequisites: tuple[Prerequisite, ...] = ()


def submit(core: CoreState, event: Submit) -> None:
    """Register and queue the jobs of a submission; raises `SubmissionRejected` if one is not valid."""
    new_jobs = _validate(core, event.jobs)
    core.next_seq += len(new_jobs)
    for new_job in new_jobs:
        core.register(new_job.job)
    jobs = [new_job.job for new_job in new_jobs]
    if jobs:
        core.effects.append(Added(jobs))
    core.effects.append(Reply({"submitted": len(jobs), "jobs": [job.name for job in jobs]}))
    for new_job in new_jobs:
        if new_job.description.hold:
            core.holds.hold(new_job.job, -1, core.now)
            core.effects.append(Held(new_job.job, -1, core.now))
        enqueue(core, new_job)


def enqueue(core: CoreState, new_job: NewJob, *, accepted_before: bool = False) -> None:
    """Queue a job, let it wait for its prerequisites, or make it FAILED because it can never run.

    `accepted_before`: a job of a resumed run, accepted when there were other nodes, waits for such nodes instead.
    """
    job = new_job.job
    job.entries = entries_for(core, job, new_job.description, new_job.requests)
    for entry in () if accepted_before else job.entries:
        if entry.line.never is not None:
            finalize_unstarted(core, job, FAILED, entry.line.never)
            return
    wait_for_prerequisites(core, new_job)
    if not job.state.is_final and (job.unmet is None or not job.unmet.on_jobs):
        make_ready(core, job)


def wait_for_prerequisites(core: CoreState, new_job: NewJob) -> None:
    """Count the unmet prerequisites of a job. Positions whose prerequisites can no longer be met are omitted."""
    job = new_job.job
    if new_job.prerequisites:
        unmet = job.unmet = UnmetDependencies()
        for prerequisite in new_job.prerequisites:
            _wait_for(core, job, unmet, prerequisite)


def unshared(description: JobDescription) -> JobDescription:
    """The description with its smallest request, where there are too few resources to share."""
    assert description.sharing is not None
    request = description.request
    least = (request.cores if description.sharing.of == "cores" else request.nodes) or Amount()
    wanted = msgspec.structs.replace(request, **{description.sharing.of: Amount(least.least, least.least)})
    return msgspec.structs.replace(description, sharing=None, request=wanted)


def entries_for(
    core: CoreState, job: Job, description: JobDescription, requests: tuple[ResourceRequest, ...]
) -> tuple[QueueEntry, ...]:
    """New queue entries of a job: one for each of its requests."""
    wall_time = description.wall_time
    rank = rank_of(description.priority) if description.priority else 0
    plan = job.iterations.plan if job.iterations is not None else None
    if plan is None:
        return (make_entry(job, core.queue.line(requests[0], wall_time), wall_time, None, rank),)
    return tuple(
        [
            make_entry(job, core.queue.line(request, wall_time), wall_time, size, rank)
            for request, size in zip(requests, plan.sizes(), strict=True)
        ]
    )


def finalize_unstarted(core: CoreState, job: Job, state: State, message: str) -> None:
    """Make the part of a job that has not started final."""
    make_final(core, UnstartedFinalState(job, state, message))


def _name_is_taken(job: Job) -> str:
    """The refusal of a description with the name of an earlier job."""
    taken = f"job {job.name!r} already exists, and is {job.state.name}; choose another name"
    if not job.state.is_final:
        return taken
    remove = f"or remove it first with: qcg-pm remove {shlex.quote(job.name)}"
    if job.state is SUCCEED:
        return f"{taken}, {remove}"
    state = job.state.name.lower()
    return (
        f"{taken}, {remove}. To run it again with another description: qcg-pm run --resume DIR --rerun {state} --from"
        " FILE, or while a manager runs: qcg-pm rerun --from FILE"
    )


def _validate(core: CoreState, descriptions: list[JobDescription]) -> list[NewJob]:
    """Check the whole submission before anything is changed."""
    problems: list[str] = []
    new_jobs: list[NewJob] = []
    new: dict[str, Job] = {}
    buffer = bytearray()
    for seq, description in enumerate(descriptions, core.next_seq):
        name = description.name
        if (existing := core.jobs.get(name)) is not None:
            problems.append(_name_is_taken(existing))
            continue
        if name in new:
            problems.append(f"job {name!r} is described twice; give each job a name of its own")
            continue
        job = new[name] = Job(seq, name, _encoded(description, buffer), core.now)
        if description.request.host and (refusal := why_no_host(core.pool, description)):
            problems.append(f"job {name!r}: {refusal}")
            continue
        if description.request.extra is not None:
            problems += [f"job {name!r}: {refusal}" for refusal in refusals(core.pool, description.request)]
        try:
            new_jobs.append(prepare(core, job, description))
        except DescriptionError as error:
            problems.append(f"job {name!r}: {error}")
    find = ChainMap(new, core.jobs)
    suggestions = Suggestions(find)
    waiting = [one for one in new_jobs if one.description.after or one.description.outcomes]
    for new_job in waiting:
        problems += find_prerequisites(new_job, find, suggestions)
    problems += map(about_cycle, find_cycles({one.job: one.prerequisites for one in waiting}, MAX_CYCLES))
    if problems:
        raise SubmissionRejected(problems)
    return new_jobs


def about_cycle(cycle: list[Job]) -> str:
    if len(cycle) == 1:
        return f"job {cycle[0].name!r} waits for itself and could never start"
    names = " -> ".join(job.name for job in [*cycle, cycle[0]])
    return f"these jobs wait for each other and could never start: {names}"


def _encoded(description: JobDescription, buffer: bytearray) -> bytes:
    """Encode a description without wasting memory: the encoder's own results are shrunk buffers, which fragment the
    heap."""
    _encode_into(description, buffer)
    return bytes(buffer)


def prepare(core: CoreState, job: Job, description: JobDescription) -> NewJob:
    """Give a job its iterations and compute its resource requests."""
    if description.iteration is not None:
        job.iterations = Iterations(description.iteration.indices())
    requests, plan = sized_requests(core, description)
    if job.iterations is not None:
        job.iterations.plan = plan
    return NewJob(job, description, requests)


def find_prerequisites(new_job: NewJob, find: Mapping[str, Job], suggestions: Suggestions | None = None) -> list[str]:
    """Resolve the prerequisites of a new job; returns a message for each that cannot be resolved."""
    description = new_job.description
    indices = description.iteration.indices() if description.iteration is not None else None
    problems = []
    found: dict[Prerequisite, None] = {}
    for kind, entry in entries_of(description):
        resolved = resolve(description.name, entry, indices, find, suggestions, kind)
        if isinstance(resolved, str):
            problems.append(resolved)
        else:
            found[resolved] = None
            opposite = OPPOSITES.get(kind) if description.outcomes else None
            if opposite is not None and replace(resolved, kind=opposite) in found:
                problems.append(f"job {description.name!r} waits for {entry!r} both to succeed and not to succeed")
    new_job.prerequisites = tuple(found)
    if len(found) > MAX_SAME_INDEX and sum(prerequisite.same_index for prerequisite in found) > MAX_SAME_INDEX:
        problems.append(f"job {description.name!r} waits for more than {MAX_SAME_INDEX} jobs by index; name whole jobs")
    return problems


def sized_requests(
    core: CoreState, description: JobDescription
) -> tuple[tuple[ResourceRequest, ...], MaximumIters | None]:
    """The resource requests of a job after `maximum-iters` or `split-into`: one for each size."""
    sharing, request = description.sharing, description.request
    plan: MaximumIters | None = None
    if request.extra is not None:
        request = with_counters_of_nodes(core.pool, request)
    if sharing is None:
        return (request,), None
    of_cores = sharing.of == "cores"
    amount = request.cores if of_cores else request.nodes
    assert amount is not None
    total = shared_total(core.pool, request, of_cores=of_cores)
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
    return tuple([msgspec.structs.replace(request, **{field: amount}) for amount in amounts]), plan


def _wait_for(core: CoreState, job: Job, unmet: UnmetDependencies, prerequisite: Prerequisite) -> None:
    other = prerequisite.job
    if prerequisite.kind != "after":
        wait_for_outcome(core, job, unmet, prerequisite)
        return
    if prerequisite.same_index:
        _wait_for_same_index(core, job, unmet, other)
        return
    position = -1 if prerequisite.position is None else prerequisite.position
    state = core.state_of(other, position)
    if not state.is_final:
        unmet.on_jobs += 1
        dependents = dependents_of(other)
        if position < 0:
            dependents.on_job.append(job)
        else:
            dependents.on_position.setdefault(position, []).append(job)
    elif state is not SUCCEED:
        finalize_unstarted(core, job, OMITTED, f"it waits for {name_of(other, position)!r}, which is {state.name}")


def _wait_for_same_index(core: CoreState, job: Job, unmet: UnmetDependencies, other: Job) -> None:
    assert job.iterations is not None
    assert other.iterations is not None
    if unmet.same_index is None:
        unmet.same_index = bytearray(len(job.iterations))
    if not other.state.is_final:
        dependents_of(other).same_index.append(job)
    states = other.iterations.states
    waited_for = bitmaps.in_states(states, QUEUED, SCHEDULED, EXECUTING)
    indices = other.iterations.indices, job.iterations.indices
    unmet.same_index = bitmaps.added(unmet.same_index, bitmaps.seen_from(waited_for, *indices))
    for state in (FAILED, CANCELED, OMITTED):
        if other.iterations.counts[state]:
            for omitted in omitted_by_index(job, other, state, bitmaps.in_states(states, state)):
                make_final(core, omitted)
