"""The states of jobs and iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum


class State(IntEnum):
    """A job's state, in the order of its life cycle; a small integer, so that an iteration's state fits in a byte."""

    QUEUED = 0
    SCHEDULED = 1
    EXECUTING = 2
    SUCCEED = 3
    FAILED = 4
    CANCELED = 5
    OMITTED = 6

    is_final: bool

    def __init__(self, number: int) -> None:
        # A plain attribute: a property would be measurable on the hot path.
        self.is_final = number >= 3


QUEUED, SCHEDULED, EXECUTING, SUCCEED, FAILED, CANCELED, OMITTED = State
"""Module-level names for the hot path: looking up a member in its class takes ten times as long."""

STATES = tuple(State)
"""The states by number: `STATES[number]` is faster than `State(number)`."""


def counts_by_name(counts: Sequence[int] | Mapping[State, int] | Mapping[int, int]) -> dict[str, int]:
    """Numbers by the names of states, from numbers by state. States with 0 are left out."""
    return {state.name: counts[state] for state in STATES if counts[state]}
