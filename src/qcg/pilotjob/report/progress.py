"""The progress of a run in one line."""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.job_states import State

_WORDS = ((State.FAILED, "failed"), (State.CANCELED, "cancelled"), (State.OMITTED, "omitted"))


def progress_line(state: CoreState) -> str:
    """The progress line, from the counters of the core alone: its cost does not depend on the number of jobs."""
    parts = [_done(state.job_counts, "jobs")]
    if sum(state.iteration_counts):
        parts.append(_done(state.iteration_counts, "iterations"))
    parts.append(f"{state.executing} running")
    parts += [f"{state.job_counts[end]} {word}" for end, word in _WORDS if state.job_counts[end]]
    parts.append(f"{state.pool.taken_cores} of {state.pool.total_cores} cores busy")
    return ", ".join(parts)


def _done(counts: list[int], what: str) -> str:
    return f"{sum(counts[State.SUCCEED :])} of {sum(counts)} {what} done"
