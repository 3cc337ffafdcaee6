"""The iterations of a job: a range and a byte each, whatever their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qcg.pilotjob.core import bitmaps
from qcg.pilotjob.core.job_states import CANCELED, FAILED, OMITTED, QUEUED, STATES, SUCCEED, State

if TYPE_CHECKING:
    from qcg.pilotjob.core.records import Attempt
    from qcg.pilotjob.description.iteration_schedulers import MaximumIters


class Iterations:
    """States by position (0, 1, 2 … in the order of the indices), counts by state, runs only of those under way."""

    __slots__ = ("attempts", "attempts_made", "began", "counts", "indices", "plan", "states")

    def __init__(self, indices: range, plan: MaximumIters | None = None) -> None:
        self.indices = indices
        self.plan = plan
        """How large each one is, where they are not all of one size."""
        self.states = bytearray(len(indices))
        self.counts = [0] * len(State)
        self.counts[QUEUED] = len(indices)
        self.began = 0.0
        """When the first of them started."""
        self.attempts: dict[int, Attempt] = {}
        self.attempts_made: dict[int, int] = {}
        """How many runs an iteration has lost, where that is not none."""

    def __len__(self) -> int:
        return len(self.indices)

    def position(self, index: int) -> int | None:
        return self.indices.index(index) if index in self.indices else None

    def position_of(self, text: str) -> int | None:
        """The position of an index as people write it."""
        try:
            return self.position(int(text))
        except ValueError:
            return None

    def state(self, position: int) -> State:
        return STATES[self.states[position]]

    def set_state(self, position: int, state: State) -> None:
        self.counts[self.states[position]] -= 1
        self.states[position] = state
        self.counts[state] += 1

    def queued(self) -> bitmaps.Bitmap:
        return bitmaps.in_states(self.states, QUEUED)

    def make_final(self, those: bitmaps.Bitmap, state: State) -> int:
        """Put these into `state` at once, all of which have not started; how many they are."""
        number = those.count(1)
        if number:
            self.states = bitmaps.entered(self.states, those, state)
            self.counts[QUEUED] -= number
            self.counts[state] += number
        return number

    def make_queued_final(self, state: State) -> int:
        """Put every iteration that has not started into `state` at once; how many these were."""
        queued = self.counts[QUEUED]
        if queued:
            self.states = self.states.replace(bytes([QUEUED]), bytes([state]))
            self.counts[QUEUED] = 0
            self.counts[state] += queued
        return queued

    @property
    def unfinished(self) -> int:
        return sum(self.counts[:SUCCEED])

    @property
    def all_failed(self) -> bool:
        """As those of a job that could never run. Otherwise the words that are kept for the job are about others."""
        return self.counts[FAILED] == len(self)

    def final_state(self) -> State:
        """The state of the whole job once all iterations are final."""
        for state in (FAILED, CANCELED, OMITTED):
            if self.counts[state]:
                return state
        return SUCCEED
