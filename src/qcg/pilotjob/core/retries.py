"""Further attempts of jobs that did not succeed: budgets for each cause, pauses, and growing resources."""

from __future__ import annotations

import heapq

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.demands import set_demand
from qcg.pilotjob.core.effects import Requeued, WakeAt
from qcg.pilotjob.core.feasibility import fits, with_existing_cores, with_existing_memory
from qcg.pilotjob.core.finalize import FinalState, is_met, make_final, make_position_ready
from qcg.pilotjob.core.job_states import OMITTED, QUEUED
from qcg.pilotjob.core.node_health import AVOID_SECONDS, can_try_elsewhere, node_to_avoid, note_failure
from qcg.pilotjob.core.outcome_waits import why_never_met
from qcg.pilotjob.core.outcomes import note_attempt
from qcg.pilotjob.core.queue import Demand, entry_of
from qcg.pilotjob.core.records import Attempt, Job, Past, PastAttempt
from qcg.pilotjob.description.encoding import RETRY_KEY
from qcg.pilotjob.description.model import JobDescription, ResourceRequest, RetryPolicy, Sharing
from qcg.pilotjob.description.retry import (
    GROWING_CAUSES,
    accepts,
    grown_request,
    grown_wall_time,
    pause_before,
)
from qcg.pilotjob.host.records import EndReason


class _RetryOfJob(Struct, gc=False):
    """The part of an encoded description that says whether a job is started again."""

    retry: RetryPolicy | None = None
    wall_time: float | None = None
    request: ResourceRequest = ResourceRequest()
    sharing: Sharing | None = None


_decode = msgspec.msgpack.Decoder(_RetryOfJob).decode


def retry_attempt(
    core: CoreState, attempt: Attempt, cause: str, exit_code: int, message: str, at: float | None
) -> bool:
    """Queue the job of a failed attempt again, if its policy says so; returns whether it does.

    The attempt is no longer registered. `at`: when it ended, by the clock of its host; None: now.
    """
    policy = policy_of(core, attempt.job)
    if policy is None or attempt.kill_requested or not accepts(policy, cause, exit_code):
        return False
    past = core.past_of(attempt.job, attempt.position)
    used = past.retries.get(cause, 0) if past is not None else 0
    if used >= policy.budgets[cause]:
        return False
    pause = pause_before(policy, used + 1, attempt.id)
    # From now, not from the end of the attempt: the clocks of hosts differ.
    next_at = core.now + pause if pause else 0.0
    ended = core.now if at is None else at
    queue_again(core, attempt, PastAttempt(cause, ended, exit_code, message, next_at, counted=True), at)
    return True


def try_elsewhere(core: CoreState, attempt: Attempt, message: str, at: float | None) -> bool:
    """Queue a job again that could not be started, if another node may be able to; returns whether it is queued."""
    if not can_try_elsewhere(core, attempt):
        return False
    ended = core.now if at is None else at
    queue_again(core, attempt, PastAttempt(EndReason.UNSTARTABLE, ended, -1, message), at)
    return True


def policy_of(core: CoreState, job: Job) -> RetryPolicy | None:
    """The retry policy of a job that is not final: its own, or that of the run."""
    return _retry_of(core, job).retry


def queue_again(core: CoreState, attempt: Attempt, past: PastAttempt | None, at: float | None = None) -> None:
    """Queue the job or iteration again. The attempt number is used up even if the attempt never started.

    `past`: how it ended; None for an attempt that was never started. `at`: when, by the clock of its host; None: now.
    """
    job, position = attempt.job, attempt.position
    note_attempt(core, attempt)
    if job.iterations is None:
        job.last_number = attempt.number
    else:
        job.iterations.last_numbers[position] = attempt.number
    core.effects.append(Requeued(attempt, past))
    core.transition(job, position, QUEUED, at=at)
    if past is not None:
        count_past(core, job, position, past)
    if not is_met(job, position) and (why := why_never_met(core, job, position)) is not None:
        make_final(core, FinalState(job, position, OMITTED, why), at=at)
        return
    if past is not None:
        if past.cause != EndReason.CLOSED:
            core.failed_and_repeated += 1
            earlier = core.past[job.seq][position]
            note_failure(core, attempt, earlier, past.cause, grows=_grows_after(core, job, past.cause))
        if past.counted or (past.cause != EndReason.CLOSED and len(core.nodes) > 1):
            prepare_next_attempt(core, job, position, past.next_at)
            if (job.seq, position) in core.paused:
                return
    if is_met(job, position):
        make_position_ready(core, job, position)


def count_past(core: CoreState, job: Job, position: int, past: PastAttempt) -> None:
    """Count an attempt that is over."""
    earlier = core.past.setdefault(job.seq, {}).setdefault(position, Past())
    earlier.attempts += 1
    if past.counted:
        earlier.retries[past.cause] = earlier.retries.get(past.cause, 0) + 1
        earlier.steps += past.cause in GROWING_CAUSES


def prepare_next_attempt(core: CoreState, job: Job, position: int, next_at: float = 0.0) -> bool:
    """Set the demand of the next attempt by its retry policy, and pause until `next_at` if that time is still to come.

    Returns whether the position was ready before. The caller makes it ready again, unless it pauses.
    """
    past, own = core.past_of(job, position), _retry_of(core, job)
    entry = entry_of(job, position)
    was_ready = entry.withdraw(position)
    grows = past is not None and past.steps and own.retry is not None and own.retry.grow is not None
    request, wall_time = entry.line.request, entry.wall_time or None
    if grows:
        assert past is not None
        assert own.retry is not None
        wall_time = grown_wall_time(own.retry, own.wall_time, past.steps)
        request = _grown_request(core, own, request, past.steps)
    avoid = node_to_avoid(core, past, request)
    if avoid:
        until = max(next_at, core.now) + min(AVOID_SECONDS, core.patience)
        core.health.avoiding[job.seq, position] = until, job
        heapq.heappush(core.health.avoidances, (until, job.seq, position))
    set_demand(core, job, position, Demand(request, wall_time or 0.0, entry.rank, avoid))
    if next_at > core.now:
        core.paused[job.seq, position] = next_at, job
        heapq.heappush(core.pauses, (next_at, job.seq, position))
        core.effects.append(WakeAt(core.pauses[0][0]))
    return was_ready


def wake_paused(core: CoreState) -> None:
    """Make jobs ready whose pause is over, and ask for a scheduling pass at the end of the next pause."""
    while core.pauses:
        at, seq, position = core.pauses[0]
        until, job = core.paused.get((seq, position), (0.0, None))
        if until == at > core.now:
            core.effects.append(WakeAt(at))
            return
        heapq.heappop(core.pauses)
        if job is not None and until == at:
            del core.paused[seq, position]
            if core.state_of(job, position) is QUEUED and is_met(job, position):
                make_position_ready(core, job, position)


def end_avoidances(core: CoreState) -> None:
    """Let jobs that have avoided a node for long enough use any node, and ask for a pass at the next such time."""
    health = core.health
    while health.avoidances:
        at, seq, position = health.avoidances[0]
        until, job = health.avoiding.get((seq, position), (0.0, None))
        if until == at > core.now:
            core.effects.append(WakeAt(at))
            return
        heapq.heappop(health.avoidances)
        if job is not None and until == at:
            del health.avoiding[seq, position]
            if not (job.state.is_final or core.state_of(job, position).is_final):
                _use_any_node(core, job, position)


def _use_any_node(core: CoreState, job: Job, position: int) -> None:
    entry = entry_of(job, position)
    if not entry.line.avoid:
        return
    was_ready = entry.withdraw(position)
    if job.iterations is None:
        core.queue.drop_ready(entry)
    set_demand(core, job, position, entry.demand._replace(avoid=""))
    if was_ready:
        make_position_ready(core, job, position)


def grown_description(description: JobDescription, attempt: Attempt) -> JobDescription:
    """The description with the resources and the wall time that this attempt has grown to. The job is not final."""
    entry = entry_of(attempt.job, attempt.position)
    return replace(description, request=entry.line.request, wall_time=entry.wall_time or None)


def _grows_after(core: CoreState, job: Job, cause: str) -> bool:
    """Whether the next attempt gets more resources after this cause."""
    policy = policy_of(core, job) if cause in GROWING_CAUSES else None
    return policy is not None and policy.grow is not None


def _retry_of(core: CoreState, job: Job) -> _RetryOfJob:
    spec = job.spec
    if spec is None or (core.retry is None and RETRY_KEY not in spec):
        return _NO_RETRY
    own = _decode(spec)
    return own if own.retry is not None else replace(own, retry=core.retry)


_NO_RETRY = _RetryOfJob()


def _grown_request(core: CoreState, own: _RetryOfJob, current: ResourceRequest, steps: int) -> ResourceRequest:
    """The request after so many steps, with at most the memory and the cores that the nodes of the run have; the
    request of an earlier step where no node has both.

    `current`: the request of the last attempt. Sizes chosen by an iteration scheduler do not grow.
    """
    assert own.retry is not None
    specs = core.pool.specs
    cores_shared = own.sharing is not None and own.sharing.of == "cores"
    cores = current.cores if cores_shared else own.request.cores
    first = replace(current, memory=own.request.memory, cores=cores)
    for number in range(steps, 0, -1):
        grown = grown_request(own.retry, first, number)
        if cores_shared:
            grown = replace(grown, cores=cores)
        if fits(grown, specs):
            return grown
        memory = with_existing_memory(replace(first, memory=grown.memory), first.memory, specs).memory
        if cores is not None and grown.cores != cores:
            grown = with_existing_cores(replace(first, cores=grown.cores), cores, specs)
        grown = replace(grown, memory=memory)
        if fits(grown, specs):
            return grown
    return first
