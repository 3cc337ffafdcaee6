"""Jobs, attempts and effects for tests of the journal."""

from __future__ import annotations

import msgspec

from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, Grant, Job, NodePart
from qcg.pilotjob.description.model import Execution, Iteration, JobDescription

GRANT = Grant((NodePart("n1", (0, 1), ("0",), 512), NodePart("n2", (7,))))


def description(seq: int, name: str = "", indices: range | None = None) -> JobDescription:
    iteration = None if indices is None else Iteration(indices.start, indices.stop, indices.step)
    return JobDescription(name or f"job{seq}", Execution(exec="x"), iteration=iteration)


def spec(seq: int, name: str = "", indices: range | None = None) -> bytes:
    return msgspec.msgpack.encode(description(seq, name, indices))


def job(seq: int, name: str = "", indices: range | None = None) -> Job:
    """A new job; with `indices` it has iterations."""
    made = Job(seq, name or f"job{seq}", spec(seq, name, indices), 100.0 + seq)
    made.iterations = None if indices is None else Iterations(indices)
    return made


def run(of: Job, position: int = -1, attempt: int = 1, grant: Grant = GRANT) -> Attempt:
    return Attempt(of, position, attempt, grant, 200.0)


def scheduled(run: Attempt) -> Transition:
    return Transition(run.job, run.position, State.SCHEDULED, run.scheduled, run)


def executing(run: Attempt, pid: int = 4711, at: float = 201.0) -> Transition:
    run.pid, run.started = pid, at
    return Transition(run.job, run.position, State.EXECUTING, at, run)


def begun(of: Job) -> Transition:
    """The effects of the start of the first iteration, and so of its job."""
    return Transition(of, -1, State.EXECUTING, 201.0)


def ended(run: Attempt, state: State = State.SUCCEED, exit_code: int | None = 0, message: str = "") -> Transition:
    return Transition(run.job, run.position, state, 202.0, run, exit_code, message)


def settled(of: Job, position: int, state: State, message: str = "") -> Transition:
    return Transition(of, position, state, 203.0, message=message)
