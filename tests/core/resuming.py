"""What a journal would give back of a core's books, as data; and another core made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.restore import Restoration, known_iterations
from qcg.pilotjob.core.state import CoreState
from qcg.pilotjob.core.states import State


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
    attempts: list[tuple[int, int]]


class UnderWay(NamedTuple):
    place: tuple[int, int, int, Grant, float]
    killed: bool
    stopped: bool
    pid: int
    started: float


class Books(NamedTuple):
    max_seq: int
    final: list[Final]
    unfinished: list[Unfinished]
    runs: list[UnderWay]


def books_of(core: CoreState) -> Books:
    books = Books(core.next_seq - 1, [], [], [])
    for job in core.jobs.values():
        iterations = job.iterations
        states = [] if iterations is None else [State(state) for state in iterations.states]
        ends = [(position, state) for position, state in enumerate(states) if state.is_final]
        if job.state.is_final:
            indices = None if iterations is None else iterations.indices
            books.final.append(Final(job.seq, job.name, job.state, job.submitted, job.message, indices, ends))
            continue
        assert job.spec is not None
        attempts = [(-1, job.attempts)] if iterations is None else list(iterations.attempts.items())
        began = 0.0 if iterations is None else iterations.began
        books.unfinished.append(Unfinished(job.seq, job.name, job.submitted, job.spec, began, ends, attempts))
    for run in core.runs.values():
        place = (run.job.seq, run.position, run.attempt, run.grant, run.scheduled)
        books.runs.append(UnderWay(place, run.killed, run.stopped, run.pid, run.started))
    return books


def resume(
    books: Books, nodes: Sequence[NodeSpec], now: float, *, rerun_lost: bool, keeper: str = ""
) -> tuple[Core, list[Effect]]:
    core = Core(nodes, rerun_lost=rerun_lost, keeper=keeper)
    restoration = Restoration(core.state, now, books.max_seq)
    for final in books.final:
        iterations = None if final.indices is None else known_iterations(final.indices, final.state, final.ends)
        restoration.final_job(final.seq, final.name, final.state, final.submitted, final.message, iterations)
    for job in books.unfinished:
        restoration.unfinished_job(job.seq, job.name, job.submitted, job.spec, job.began)
    for job in books.unfinished:
        for position, state in job.settled:
            restoration.settled_iteration(job.seq, position, state)
        for position, attempt in job.attempts:
            if attempt:
                restoration.lost_attempt(job.seq, position, attempt)
    for run in books.runs:
        restoration.run_under_way(run.place, killed=run.killed, stopped=run.stopped, pid=run.pid, started=run.started)
    return core, restoration.finish()
