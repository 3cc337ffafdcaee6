"""The states of a job and of an iteration."""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    """In the order in which a job goes through them; small integers, so that an iteration's state fits in a byte."""

    QUEUED = 0
    SCHEDULED = 1
    EXECUTING = 2
    SUCCEED = 3
    FAILED = 4
    CANCELED = 5
    OMITTED = 6

    is_final: bool

    def __init__(self, number: int) -> None:
        # Asked for so often that even a property would show.
        self.is_final = number >= 3


QUEUED, SCHEDULED, EXECUTING, SUCCEED, FAILED, CANCELED, OMITTED = State
"""For what is done for every job: to find one in its class takes ten times as long."""

STATES = tuple(State)
"""By number: faster than `State(number)`."""
