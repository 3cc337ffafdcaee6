"""A core restored from the state of another core, as from its registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.restore import (
    EndedIteration,
    EndedIterations,
    FinalJob,
    HeldPosition,
    LedgerRecords,
    OpenAttempt,
    PastAttempts,
    RequeuedAttempt,
    SavedRun,
    UnfinishedJob,
    restore,
)
from qcg.pilotjob.description.model import JobDescription


def save_state(core: CoreState) -> SavedRun:
    """The value that a registry would return for this core."""
    final, unfinished = [], []
    ended: list[EndedIteration] = []
    requeued: list[RequeuedAttempt] = []
    for job in core.jobs.values():
        iterations, ends = job.iterations, _ends_of(job)
        if job.state.is_final:
            ended_iterations = None if iterations is None else EndedIterations(iterations.indices, job.state, ends)
            final.append(FinalJob(job.seq, job.name, job.state, job.submitted, job.message, ended_iterations))
            continue
        assert job.spec is not None
        description = msgspec.msgpack.decode(job.spec, type=JobDescription)
        began = 0.0 if iterations is None else iterations.began
        unfinished.append(UnfinishedJob(job.seq, job.name, job.submitted, job.spec, description, began))
        ended += [EndedIteration(job.seq, position, state) for position, state in ends]
        made = [(-1, job.last_number)] if iterations is None else list(iterations.last_numbers.items())
        requeued += [RequeuedAttempt(job.seq, position, number) for position, number in made if number]
    attempts = [
        OpenAttempt(
            attempt.job.seq,
            attempt.position,
            attempt.number,
            attempt.grant,
            attempt.scheduled,
            attempt.started,
            attempt.pid,
            attempt.kill_requested,
            attempt.stop_requested,
        )
        for attempt in core.attempts.values()
    ]
    open_jobs = {job.seq for job in core.jobs.values() if not job.state.is_final}
    past = [
        PastAttempts(
            seq,
            position,
            one.attempts,
            dict(one.retries),
            core.paused.get((seq, position), (0.0,))[0],
            one.failed_node,
            one.unstartable,
        )
        for seq, of_job in core.past.items()
        if seq in open_jobs
        for position, one in of_job.items()
    ]
    held = [HeldPosition(*hold) for hold in sorted(core.holds.items())]
    begun = [
        (job.seq, position if job.iterations is not None else -1)
        for job in core.jobs.values()
        for position, noted in enumerate(core.begun.get(job.seq, b""))
        if noted
    ]
    drained = dict(core.health.drained)
    return SavedRun(core.next_seq - 1, final, unfinished, ended, requeued, attempts, past, held, begun, drained)


def _ends_of(job: Job) -> list[tuple[int, State]]:
    states = [] if job.iterations is None else [State(state) for state in job.iterations.states]
    return [(position, state) for position, state in enumerate(states) if state.is_final]


def resume(
    saved: SavedRun,
    nodes: Sequence[NodeSpec],
    now: float,
    *,
    rerun_lost: bool,
    fallback_node: str = "",
    counters: Mapping[str, int] | None = None,
    drain_after: int = 0,
    stop_after: int = 0,
) -> tuple[Core, list[Effect]]:
    core = Core(
        nodes,
        rerun_lost=rerun_lost,
        fallback_node=fallback_node,
        counters=counters or {},
        drain_after=drain_after,
        stop_after=stop_after,
    )
    return core, restore(core.state, saved, LedgerRecords(), now)
