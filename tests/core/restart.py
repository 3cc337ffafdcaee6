"""What a journal would give back of a core's books, as data; and another core made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.restore import Restoration, known_iterations


class Final(NamedTuple):
    seq: int
    name: str
    state: State
    submitted: float
    message: str
    indices: range | None
    ends: list[tuple[int, State]]


class Unfinished(NamedTuple):
    seq: int
    name: str
    submitted: float
    spec: bytes
    began: float
    settled: list[tuple[int, State]]
    attempts_made: list[tuple[int, int]]


class UnderWay(NamedTuple):
    place: tuple[int, int, int, Grant, float]
    killed: bool
    stopped: bool
    pid: int
    started: float


class SavedState(NamedTuple):
    max_seq: int
    final: list[Final]
    unfinished: list[Unfinished]
    attempts: list[UnderWay]


def save_state(core: CoreState) -> SavedState:
    saved = SavedState(core.next_seq - 1, [], [], [])
    for job in core.jobs.values():
        iterations = job.iterations
        states = [] if iterations is None else [State(state) for state in iterations.states]
        ends = [(position, state) for position, state in enumerate(states) if state.is_final]
        if job.state.is_final:
            indices = None if iterations is None else iterations.indices
            saved.final.append(Final(job.seq, job.name, job.state, job.submitted, job.message, indices, ends))
            continue
        assert job.spec is not None
        attempts_made = [(-1, job.attempts_made)] if iterations is None else list(iterations.attempts_made.items())
        began = 0.0 if iterations is None else iterations.began
        saved.unfinished.append(Unfinished(job.seq, job.name, job.submitted, job.spec, began, ends, attempts_made))
    for attempt in core.attempts.values():
        place = (attempt.job.seq, attempt.position, attempt.number, attempt.grant, attempt.scheduled)
        saved.attempts.append(UnderWay(place, attempt.killed, attempt.stopped, attempt.pid, attempt.started))
    return saved


def resume(
    saved: SavedState, nodes: Sequence[NodeSpec], now: float, *, rerun_lost: bool, fallback_node: str = ""
) -> tuple[Core, list[Effect]]:
    core = Core(nodes, rerun_lost=rerun_lost, fallback_node=fallback_node)
    restoration = Restoration(core.state, now, saved.max_seq)
    for final in saved.final:
        iterations = None if final.indices is None else known_iterations(final.indices, final.state, final.ends)
        restoration.final_job(final.seq, final.name, final.state, final.submitted, final.message, iterations)
    for job in saved.unfinished:
        restoration.unfinished_job(job.seq, job.name, job.submitted, job.spec, job.began)
    for job in saved.unfinished:
        for position, state in job.settled:
            restoration.settled_iteration(job.seq, position, state)
        for position, number in job.attempts_made:
            if number:
                restoration.lost_attempt(job.seq, position, number)
    for attempt in saved.attempts:
        restoration.run_under_way(
            attempt.place, killed=attempt.killed, stopped=attempt.stopped, pid=attempt.pid, started=attempt.started
        )
    return core, restoration.finish()
