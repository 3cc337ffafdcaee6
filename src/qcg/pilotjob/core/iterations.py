"""The iterations of a job: a range of indices, and a byte of state for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qcg.pilotjob.core import bitmaps
from qcg.pilotjob.core.job_states import CANCELED, FAILED, OMITTED, QUEUED, STATES, SUCCEED, State

if TYPE_CHECKING:
    from qcg.pilotjob.core.queue import Demand, QueueEntry
    from qcg.pilotjob.core.records import Attempt
    from qcg.pilotjob.description.iteration import Indices
    from qcg.pilotjob.description.iteration_schedulers import MaximumIters


class Iterations:
    """The states of the iterations by position (0, 1, 2 … in the order of the indices), and their current attempts."""

    __slots__ = (
        "apart",
        "apart_by_demand",
        "attempts",
        "began",
        "counts",
        "indices",
        "last_numbers",
        "plan",
        "states",
    )

    def __init__(self, indices: Indices, plan: MaximumIters | None = None) -> None:
        self.indices = indices
        self.plan = plan
        """Sizes of the iterations under `maximum-iters`; None if all have the same size."""
        self.states = bytearray(len(indices))
        self.counts = [0] * len(State)
        self.counts[QUEUED] = len(indices)
        self.began = 0.0
        """Time at which the first iteration started."""
        self.attempts: dict[int, Attempt] = {}
        self.last_numbers: dict[int, int] = {}
        """By position, the number of its last attempt that is over; positions without one are left out."""
        self.apart: dict[int, QueueEntry] | None = None
        """Queue entries of positions that do not wait in the entry of their job: these positions pause before a retry,
        are held, or have a demand of their own."""
        self.apart_by_demand: dict[Demand, QueueEntry] | None = None
        """Queue entries of positions with a demand other than that of the job, one for each distinct demand."""

    def __len__(self) -> int:
        return len(self.indices)

    def position(self, index: int) -> int | None:
        return self.indices.index(index) if index in self.indices else None

    def position_of(self, text: str) -> int | None:
        """The position of an index given as text; None if there is no such index."""
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
        """The set of queued iterations."""
        return bitmaps.in_states(self.states, QUEUED)

    def make_final(self, chosen: bitmaps.Bitmap, state: State) -> int:
        """Put a set of queued iterations into a final state at once; returns their number."""
        number = chosen.count(1)
        if number:
            self.states = bitmaps.entered(self.states, chosen, state)
            self.counts[QUEUED] -= number
            self.counts[state] += number
        return number

    def make_queued_final(self, state: State) -> int:
        """Put all queued iterations into a final state at once; returns their number."""
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
        """Whether every iteration failed; only then does the stored message describe all of them."""
        return self.counts[FAILED] == len(self)

    def final_state(self) -> State:
        """The state of the whole job once all iterations are final."""
        for state in (FAILED, CANCELED, OMITTED):
            if self.counts[state]:
                return state
        return SUCCEED
