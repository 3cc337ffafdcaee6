"""Single positions come in order, and removed positions do not come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.ready_positions import FEW, ReadyPositions

POSITIONS = 4 * FEW


@given(st.lists(st.tuples(st.sampled_from(["add", "take back", "start", "first"]), st.integers(0, POSITIONS - 1))))
def test_the_first_position_is_the_lowest_one_that_was_added_and_not_taken_back(steps: list[tuple[str, int]]):
    ready, expected = ReadyPositions(), set[int]()
    states = bytearray(POSITIONS)
    for what, position in steps:
        if what == "add" and states[position] == State.QUEUED:
            ready.add(position)
            expected.add(position)
        elif what == "take back":
            ready.withdraw(position)
            expected.discard(position)
        elif what == "start" and expected:
            assert ready.first(states) == min(expected)
            ready.drop_first()
            states[min(expected)] = State.EXECUTING
            expected.discard(min(expected))
        elif what == "first" and position in expected:  # the position became final in another way
            states[position] = State.CANCELED
            expected.discard(position)
        assert ready.first(states) == min(expected, default=None)
        assert all(position in ready for position in expected)


def test_positions_taken_back_again_and_again_do_not_pile_up():
    ready = ReadyPositions()
    for _ in range(100):
        for position in range(POSITIONS):
            ready.add(position)
        for position in range(POSITIONS):
            ready.withdraw(position)
        assert len(ready) == 0
    assert len(ready._heap) <= FEW + 1
