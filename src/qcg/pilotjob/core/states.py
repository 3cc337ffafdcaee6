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

    @property
    def is_final(self) -> bool:
        return self >= State.SUCCEED
